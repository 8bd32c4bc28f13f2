! Blocks of 5 x 5 numbers, and a system of five coupled equations whose solution is known.
!
! The equations are coupled by the matrix COUPLING, tridiagonal with ones on and -0.3 beside the diagonal. Its
! eigenvectors are sine waves, so that a field made of them has a known future. The solver does not use that:
! it treats each block as any other, as BT of the NAS benchmarks does.
module blocks
  implicit none
  private
  public :: real64, equations, coupling, eigenvalue, eigenvector, pi, solve_block, subtract_product

  integer, parameter :: real64 = selected_real_kind(15), equations = 5
  real(real64), parameter :: pi = acos(-1.0_real64), beside = -0.3_real64

contains

  pure function coupling() result(matrix)
    real(real64) :: matrix(equations, equations)
    integer :: i, j
    do j = 1, equations
      matrix(:, j) = [(merge(beside, 0.0_real64, abs(i - j) == 1), i = 1, equations)]
      matrix(j, j) = 1
    end do
  end function

  pure real(real64) function eigenvalue(mode)
    integer, intent(in) :: mode
    eigenvalue = 1 + 2 * beside * cos(mode * pi / (equations + 1))
  end function

  pure function eigenvector(mode) result(vector)
    integer, intent(in) :: mode
    real(real64) :: vector(equations)
    integer :: i
    vector = [(sin(i * mode * pi / (equations + 1)), i = 1, equations)]
  end function

  ! Replaces `right` by the solution of `block * solution = right`. The blocks are diagonally dominant, so no
  ! rows need to be exchanged. Overwrites `block`.
  pure subroutine solve_block(block, right)
    real(real64), intent(inout) :: block(equations, equations), right(:, :)
    real(real64) :: factor
    integer :: row, below
    do row = 1, equations
      factor = 1 / block(row, row)
      block(row, row + 1:) = block(row, row + 1:) * factor
      right(row, :) = right(row, :) * factor
      do below = 1, equations
        if (below == row) cycle
        factor = block(below, row)
        block(below, row + 1:) = block(below, row + 1:) - factor * block(row, row + 1:)
        right(below, :) = right(below, :) - factor * right(row, :)
      end do
    end do
  end subroutine

  ! result = result - left * right
  pure subroutine subtract_product(result, left, right)
    real(real64), intent(inout) :: result(:, :)
    real(real64), intent(in) :: left(equations, equations), right(:, :)
    integer :: i, k
    do i = 1, size(right, 2)
      do k = 1, equations
        result(:, i) = result(:, i) - left(:, k) * right(k, i)
      end do
    end do
  end subroutine
end module
