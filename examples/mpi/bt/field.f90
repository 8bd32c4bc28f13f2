! The field, its distribution over the ranks, and its exact values.
!
! N x N x N points lie on a grid of ranks in the second and third dimension; the first is never cut. Zero
! walls surround the points. The field is a sum of five modes, one for each eigenvector of the coupling, each a
! product of sine waves. A step multiplies a mode by a known factor.
module field
  use, intrinsic :: ieee_arithmetic, only: ieee_is_nan
  use mpi
  use blocks
  implicit none
  private
  public :: grid, make_grid, exact, worst_error, exchange_halo

  ! Different in each dimension, so that what reaches the wrong side shows.
  real(real64), parameter, public :: diffusion(3) = [1.0_real64, 0.9_real64, 0.8_real64]
  ! Half waves of each mode in each dimension.
  integer, parameter :: waves(3, equations) = reshape( &
    [1, 2, 1, 2, 1, 1, 1, 1, 2, 2, 1, 2, 1, 1, 1], [3, equations])
  real(real64), parameter :: decay = 0.05_real64 ! about what the first mode loses in a step

  type :: grid
    integer :: communicator, points
    integer :: first(2:3), last(2:3), held(2:3) ! this rank's points of the cut dimensions
    integer :: before(2:3), after(2:3)          ! neighbours
    real(real64) :: step
    real(real64), allocatable :: u(:, :, :, :), change(:, :, :, :)
    real(real64), allocatable :: out(:, :), in(:, :)
  end type

contains

  type(grid) function make_grid(points) result(g)
    integer, intent(in) :: points
    integer :: dims(2), place(2), ranks, rank, error, d
    dims = 0
    call MPI_Comm_size(MPI_COMM_WORLD, ranks, error)
    call MPI_Dims_create(ranks, 2, dims, error)
    call MPI_Cart_create(MPI_COMM_WORLD, 2, dims, [.false., .false.], .true., g%communicator, error)
    call MPI_Comm_rank(g%communicator, rank, error)
    call MPI_Cart_coords(g%communicator, rank, 2, place, error)
    g%points = points
    do d = 2, 3
      call MPI_Cart_shift(g%communicator, d - 2, 1, g%before(d), g%after(d), error)
      g%first(d) = points * place(d - 1) / dims(d - 1) + 1
      g%last(d) = points * (place(d - 1) + 1) / dims(d - 1)
    end do
    g%held = g%last - g%first + 1
    g%step = decay / (eigenvalue(1) * sum(diffusion * [(wave_number(g, d, 1), d = 1, 3)]))
    allocate (g%u(equations, points, 0:g%held(2) + 1, 0:g%held(3) + 1))
    allocate (g%change(equations, points, g%held(2), g%held(3)))
    allocate (g%out(equations * points * maxval(g%held), 2), g%in(equations * points * maxval(g%held), 2))
  end function

  ! Eigenvalue of the second difference for a mode's wave.
  pure real(real64) function wave_number(g, d, mode)
    type(grid), intent(in) :: g
    integer, intent(in) :: d, mode
    wave_number = 2 - 2 * cos(waves(d, mode) * pi / (g%points + 1))
  end function

  ! What is left of a mode after one step: the factored (ADI) form of an implicit step.
  pure real(real64) function factor(g, mode)
    type(grid), intent(in) :: g
    integer, intent(in) :: mode
    real(real64) :: terms(3)
    integer :: d
    terms = [(g%step * diffusion(d) * eigenvalue(mode) * wave_number(g, d, mode), d = 1, 3)]
    factor = 1 - sum(terms) / product(1 + terms)
  end function

  ! The field after `steps` steps, at points of this rank (without the walls and the neighbours' points).
  function exact(g, steps) result(u)
    type(grid), intent(in) :: g
    integer, intent(in) :: steps
    real(real64) :: u(equations, g%points, g%held(2), g%held(3))
    real(real64) :: vector(equations), yz
    integer :: mode, i, j, k
    u = 0
    do mode = 1, equations
      vector = eigenvector(mode) * factor(g, mode)**steps
      do k = 1, g%held(3)
        do j = 1, g%held(2)
          yz = wave(g, 2, mode, g%first(2) + j - 1) * wave(g, 3, mode, g%first(3) + k - 1)
          do i = 1, g%points
            u(:, i, j, k) = u(:, i, j, k) + vector * wave(g, 1, mode, i) * yz
          end do
        end do
      end do
    end do
  end function

  pure real(real64) function wave(g, d, mode, at)
    type(grid), intent(in) :: g
    integer, intent(in) :: d, mode, at
    wave = sin(waves(d, mode) * pi * at / (g%points + 1))
  end function

  ! The largest distance from the exact field over all points of all ranks.
  real(real64) function worst_error(g, steps)
    type(grid), intent(in) :: g
    integer, intent(in) :: steps
    real(real64) :: own
    integer :: error
    associate (held => g%u(:, :, 1:g%held(2), 1:g%held(3)))
      own = maxval(abs(held - exact(g, steps)))
      ! No comparison finds a number that is none.
      if (any(ieee_is_nan(held))) own = huge(own)
    end associate
    call MPI_Allreduce(own, worst_error, 1, MPI_DOUBLE_PRECISION, MPI_MAX, g%communicator, error)
  end function

  ! Fetches the neighbours' layers next to this rank's points; walls stay zero.
  subroutine exchange_halo(g)
    type(grid), intent(inout) :: g
    call exchange(g, 2, g%u(:, :, 1, 1:g%held(3)), g%u(:, :, g%held(2), 1:g%held(3)))
    if (g%before(2) /= MPI_PROC_NULL) g%u(:, :, 0, 1:g%held(3)) = layer(1, g%held(3))
    if (g%after(2) /= MPI_PROC_NULL) g%u(:, :, g%held(2) + 1, 1:g%held(3)) = layer(2, g%held(3))
    call exchange(g, 3, g%u(:, :, 1:g%held(2), 1), g%u(:, :, 1:g%held(2), g%held(3)))
    if (g%before(3) /= MPI_PROC_NULL) g%u(:, :, 1:g%held(2), 0) = layer(1, g%held(2))
    if (g%after(3) /= MPI_PROC_NULL) g%u(:, :, 1:g%held(2), g%held(3) + 1) = layer(2, g%held(2))
  contains
    function layer(side, lines)
      integer, intent(in) :: side, lines
      real(real64) :: layer(equations, g%points, lines)
      layer = reshape(g%in(:size(layer), side), shape(layer))
    end function
  end subroutine

  ! Sends this rank's outermost layers of dimension `d`, and receives the layers beyond them.
  subroutine exchange(g, d, lowest, highest)
    type(grid), intent(inout) :: g
    integer, intent(in) :: d
    real(real64), intent(in) :: lowest(:, :, :), highest(:, :, :)
    integer :: requests(4), numbers, error
    numbers = size(lowest)
    g%out(:numbers, 1) = reshape(lowest, [numbers])
    g%out(:numbers, 2) = reshape(highest, [numbers])
    associate (before => g%before(d), after => g%after(d), comm => g%communicator, &
               kind => MPI_DOUBLE_PRECISION)
      call MPI_Irecv(g%in(1, 1), numbers, kind, before, 2 * d, comm, requests(1), error)
      call MPI_Irecv(g%in(1, 2), numbers, kind, after, 2 * d + 1, comm, requests(2), error)
      call MPI_Isend(g%out(1, 1), numbers, kind, before, 2 * d + 1, comm, requests(3), error)
      call MPI_Isend(g%out(1, 2), numbers, kind, after, 2 * d, comm, requests(4), error)
    end associate
    call MPI_Waitall(4, requests, MPI_STATUSES_IGNORE, error)
  end subroutine
end module
