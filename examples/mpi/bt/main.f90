! A block-tridiagonal solver in the manner of NAS BT, in Fortran: five coupled diffusion equations on N^3
! points, advanced by factored implicit steps (ADI). Checked at every point against the exact solution.
!
! Exit codes: 0 verified, 1 verification failed, 2 wrong usage.
program bt
  use mpi
  use blocks
  use field
  use solver
  use options
  implicit none

  ! Rounding stays below 1e-13; one flipped bit in a face is an error of 1e-5.
  real(real64), parameter :: tolerance = 1e-11_real64
  type(chosen) :: c
  type(grid) :: g
  type(workspace) :: w
  integer :: rank, ranks, error, done
  logical :: verified, is_over
  real(real64) :: used = 0, last = 0 ! processor time, in all and as last read

  call MPI_Init(error)
  call MPI_Comm_rank(MPI_COMM_WORLD, rank, error)
  call MPI_Comm_size(MPI_COMM_WORLD, ranks, error)
  c = read_options()
  g = make_grid(c%points)
  w = make_workspace(g)
  done = 0
  verified = .true.
  is_over = .false.
  do while (.not. is_over)
    call repeat_once()
    done = done + 1
    is_over = time_is_up()
  end do
  call conclude()

contains

  subroutine repeat_once()
    double precision :: begin
    real(real64) :: worst
    integer :: step
    begin = MPI_Wtime()
    g%u = 0
    g%u(:, :, 1:g%held(2), 1:g%held(3)) = exact(g, 0)
    do step = 1, c%steps
      call advance(g, w)
      call count_time()
    end do
    worst = worst_error(g, c%steps)
    verified = verified .and. worst <= tolerance
    if (rank /= 0) return
    print '(3a, i0, a, i0, 3a, es8.1, a, f0.3, a)', 'bt: class ', c%class_name, ' on ', ranks, &
      ' ranks, repetition ', done + 1, ': ', trim(merge('verified', 'WRONG   ', worst <= tolerance)), &
      ', largest error', worst, ', ', MPI_Wtime() - begin, ' s'
    flush (6)
  end subroutine

  ! The clock of a restored process begins anew, so what it shows is added up, often.
  subroutine count_time()
    real(real64) :: now
    call cpu_time(now)
    used = used + merge(now - last, now, now >= last)
    last = now
  end subroutine

  ! Rank 0 decides for all: all must make the same number of repetitions.
  logical function time_is_up()
    call count_time()
    time_is_up = merge(used >= c%seconds, done >= c%repeat, c%seconds > 0)
    call MPI_Bcast(time_is_up, 1, MPI_LOGICAL, 0, MPI_COMM_WORLD, error)
  end function

  subroutine conclude()
    real(real64) :: mine, peak
    logical :: everywhere
    mine = peak_resident_mib()
    call MPI_Allreduce(verified, everywhere, 1, MPI_LOGICAL, MPI_LAND, MPI_COMM_WORLD, error)
    call MPI_Reduce(mine, peak, 1, MPI_DOUBLE_PRECISION, MPI_MAX, 0, MPI_COMM_WORLD, error)
    if (rank == 0) then
      print '(a, f0.1, a)', 'bt: peak resident memory ', peak, ' MiB per rank'
      print '(2a)', 'VERIFICATION ', trim(merge('SUCCESSFUL', 'FAILED    ', everywhere))
      flush (6)
    end if
    call MPI_Finalize(error)
    call exit(merge(exit_verified, exit_unverified, everywhere))
  end subroutine

  real(real64) function peak_resident_mib() result(peak)
    character(len=128) :: line
    integer :: unit, status
    peak = 0
    open (newunit=unit, file='/proc/self/status', action='read', iostat=status)
    do while (status == 0)
      read (unit, '(a)', iostat=status) line
      if (status == 0 .and. line(:6) == 'VmHWM:') read (line(7:len_trim(line) - 3), *) peak
    end do
    close (unit)
    peak = peak / 1024
  end function
end program
