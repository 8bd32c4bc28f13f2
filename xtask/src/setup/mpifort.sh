#!/bin/sh
# Compiles Fortran programs for the MPI library of this directory, as MPICH's own wrapper does.
# MPICH_FC names another compiler; -show prints the command.
prefix=$(CDPATH= cd -- "$(dirname -- "$(readlink -f -- "$0")")/.." && pwd)
compiler=${MPICH_FC:-@COMPILER@}
show=
for argument in "$@"; do
    shift
    case $argument in
    -show) show=echo ;;
    -fc=*) compiler=${argument#-fc=} ;;
    *) set -- "$@" "$argument" ;;
    esac
done
exec $show $compiler @FLAGS@ "-I$prefix/include" "$@" "-L$prefix/lib" -lmpifort -lmpi \
    "-Wl,-rpath,$prefix/lib" -Wl,--enable-new-dtags
