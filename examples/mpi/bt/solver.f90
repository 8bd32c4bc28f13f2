! One implicit step: for each dimension in turn, block-tridiagonal systems along all lines of points.
!
! A line of the first dimension lies on one rank. Lines of the others are cut: their elimination passes from
! rank to rank, and the substitution back. Lines that share a plane travel in one message, so that a rank
! works on one plane while its neighbour works on the next.
module solver
  use mpi
  use blocks
  use field
  implicit none
  private
  public :: workspace, make_workspace, advance

  type :: workspace
    ! Blocks above the diagonal after the elimination; the last two dimensions are those of the points.
    real(real64), allocatable :: above(:, :, :, :, :)
    ! One plane's boundary: block and right side of each line.
    real(real64), allocatable :: boundary(:, :, :)
  end type

contains

  type(workspace) function make_workspace(g) result(w)
    type(grid), intent(in) :: g
    allocate (w%above(equations, equations, g%points, g%held(2), g%held(3)))
    allocate (w%boundary(equations, equations + 1, g%points))
  end function

  subroutine advance(g, w)
    type(grid), intent(inout) :: g
    type(workspace), intent(inout) :: w
    integer :: d
    call exchange_halo(g)
    call find_change(g)
    call solve_whole_lines(g)
    do d = 2, 3
      call eliminate(g, w, d)
      call substitute(g, w, d)
    end do
    associate (own => g%u(:, :, 1:g%held(2), 1:g%held(3)))
      own = own + g%change
    end associate
  end subroutine

  ! The explicit part: the step times the coupled second differences.
  subroutine find_change(g)
    type(grid), intent(inout) :: g
    real(real64) :: matrix(equations, equations), sum(equations)
    integer :: i, j, k
    matrix = g%step * coupling()
    associate (u => g%u)
      do k = 1, g%held(3)
        do j = 1, g%held(2)
          do i = 1, g%points
            sum = diffusion(2) * (u(:, i, j - 1, k) - 2 * u(:, i, j, k) + u(:, i, j + 1, k)) &
                  + diffusion(3) * (u(:, i, j, k - 1) - 2 * u(:, i, j, k) + u(:, i, j, k + 1)) &
                  - 2 * diffusion(1) * u(:, i, j, k)
            if (i > 1) sum = sum + diffusion(1) * u(:, i - 1, j, k)
            if (i < g%points) sum = sum + diffusion(1) * u(:, i + 1, j, k)
            g%change(:, i, j, k) = matmul(matrix, sum)
          end do
        end do
      end do
    end associate
  end subroutine

  ! The block beside the diagonal of dimension `d`.
  function beside(g, d) result(block)
    type(grid), intent(in) :: g
    integer, intent(in) :: d
    real(real64) :: block(equations, equations)
    block = -g%step * diffusion(d) * coupling()
  end function

  ! Eliminates the block below the diagonal with the point before, whose upper block and right side are
  ! `boundary`; then `boundary` is this point's.
  pure subroutine eliminate_point(below, is_first, boundary, right)
    real(real64), intent(in) :: below(equations, equations)
    logical, intent(in) :: is_first
    real(real64), intent(inout) :: boundary(equations, equations + 1)
    real(real64), intent(in) :: right(equations)
    real(real64) :: block(equations, equations), next(equations, equations + 1)
    integer :: i
    block = -2 * below
    do i = 1, equations
      block(i, i) = block(i, i) + 1
    end do
    next(:, :equations) = below ! the same on both sides of the diagonal
    next(:, equations + 1) = right
    if (.not. is_first) then
      call subtract_product(block, below, boundary(:, :equations))
      call subtract_product(next(:, equations + 1:), below, boundary(:, equations + 1:))
    end if
    call solve_block(block, next)
    boundary = next
  end subroutine

  subroutine solve_whole_lines(g)
    type(grid), intent(inout) :: g
    real(real64) :: above(equations, equations, g%points), boundary(equations, equations + 1)
    real(real64) :: below(equations, equations)
    integer :: i, j, k
    below = beside(g, 1)
    do k = 1, g%held(3)
      do j = 1, g%held(2)
        do i = 1, g%points
          call eliminate_point(below, i == 1, boundary, g%change(:, i, j, k))
          above(:, :, i) = boundary(:, :equations)
          g%change(:, i, j, k) = boundary(:, equations + 1)
        end do
        do i = g%points - 1, 1, -1
          g%change(:, i, j, k) = g%change(:, i, j, k) - matmul(above(:, :, i), g%change(:, i + 1, j, k))
        end do
      end do
    end do
  end subroutine

  ! Forward along the lines of dimension `d`, plane by plane.
  subroutine eliminate(g, w, d)
    type(grid), intent(inout) :: g
    type(workspace), intent(inout) :: w
    integer, intent(in) :: d
    real(real64) :: below(equations, equations)
    integer :: plane, along, i, j, k, error
    below = beside(g, d)
    do plane = 1, g%held(5 - d)
      call MPI_Recv(w%boundary, size(w%boundary), MPI_DOUBLE_PRECISION, g%before(d), 10 + d, g%communicator, &
                    MPI_STATUS_IGNORE, error)
      do along = 1, g%held(d)
        j = merge(along, plane, d == 2)
        k = merge(along, plane, d == 3)
        do i = 1, g%points
          call eliminate_point(below, g%first(d) + along == 2, w%boundary(:, :, i), g%change(:, i, j, k))
          w%above(:, :, i, j, k) = w%boundary(:, :equations, i)
          g%change(:, i, j, k) = w%boundary(:, equations + 1, i)
        end do
      end do
      call MPI_Send(w%boundary, size(w%boundary), MPI_DOUBLE_PRECISION, g%after(d), 10 + d, &
                    g%communicator, error)
    end do
  end subroutine

  ! Back along the lines, plane by plane.
  subroutine substitute(g, w, d)
    type(grid), intent(inout) :: g
    type(workspace), intent(inout) :: w
    integer, intent(in) :: d
    real(real64) :: known(equations, g%points)
    integer :: plane, along, i, j, k, error
    do plane = 1, g%held(5 - d)
      known = 0 ! beyond the last point
      call MPI_Recv(known, size(known), MPI_DOUBLE_PRECISION, g%after(d), 20 + d, g%communicator, &
                    MPI_STATUS_IGNORE, error)
      do along = g%held(d), 1, -1
        j = merge(along, plane, d == 2)
        k = merge(along, plane, d == 3)
        do i = 1, g%points
          known(:, i) = g%change(:, i, j, k) - matmul(w%above(:, :, i, j, k), known(:, i))
          g%change(:, i, j, k) = known(:, i)
        end do
      end do
      call MPI_Send(known, size(known), MPI_DOUBLE_PRECISION, g%before(d), 20 + d, g%communicator, error)
    end do
  end subroutine
end module
