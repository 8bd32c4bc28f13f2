! Command line of bt, read alike by every rank; only rank 0 prints.
module options
  use mpi
  use blocks, only: real64
  implicit none
  private
  public :: chosen, read_options, exit_verified, exit_unverified

  integer, parameter :: exit_verified = 0, exit_unverified = 1, exit_usage = 2
  character(len=*), parameter :: classes = 'SWAB'
  integer, parameter :: sizes(4) = [12, 24, 64, 102] ! those of NAS BT

  type :: chosen
    character :: class_name = 'S'
    integer :: points = sizes(1), steps = 20, repeat = 1
    real(real64) :: seconds = 0 ! takes the place of `repeat` if it is positive
  end type

contains

  type(chosen) function read_options() result(c)
    character(len=64) :: name, value
    integer :: at, bad
    at = 1
    do while (at <= command_argument_count())
      call get_command_argument(at, name)
      if (name == '--help') call print_help()
      if (at == command_argument_count()) call usage_error(trim(name)//' needs a value')
      call get_command_argument(at + 1, value)
      bad = 0
      select case (name)
      case ('--class')
        bad = merge(0, 1, len_trim(value) == 1 .and. index(classes, value(1:1)) > 0)
        c%class_name = value(1:1)
      case ('--steps')
        read (value, *, iostat=bad) c%steps
        if (c%steps < 1 .or. c%steps > 100) bad = 1 ! the field decays
      case ('--repeat')
        read (value, *, iostat=bad) c%repeat
        if (c%repeat < 1) bad = 1
      case ('--seconds')
        read (value, *, iostat=bad) c%seconds
        if (.not. c%seconds >= 0) bad = 1
      case default
        call usage_error('unknown argument '//trim(name)//' (see --help)')
      end select
      if (bad /= 0) call usage_error(trim(name)//': cannot use the value '//trim(value))
      at = at + 2
    end do
    c%points = sizes(index(classes, c%class_name))
  end function

  subroutine print_help()
    if (world_rank() == 0) then
      print '(a)', 'bt: implicit steps of five coupled equations, block-tridiagonal systems in each dimension'
      print '(a)', '  --class    TEXT     problem size S, W, A or B (default S)'
      print '(a)', '  --steps    N        steps of a repetition, up to 100 (default 20)'
      print '(a)', '  --repeat   N        repetitions, each verified (default 1)'
      print '(a)', '  --seconds  SECONDS  repeat until rank 0 has used this processor time instead'
    end if
    call finish(exit_verified)
  end subroutine

  subroutine usage_error(text)
    use, intrinsic :: iso_fortran_env, only: error_unit
    character(len=*), intent(in) :: text
    if (world_rank() == 0) write (error_unit, '(2a)') 'error: ', text
    call finish(exit_usage)
  end subroutine

  subroutine finish(code)
    integer, intent(in) :: code
    integer :: error
    call MPI_Finalize(error)
    call exit(code)
  end subroutine

  integer function world_rank()
    integer :: error
    call MPI_Comm_rank(MPI_COMM_WORLD, world_rank, error)
  end function
end module
