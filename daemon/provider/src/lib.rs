//! libcoswitch_fi.so: the libfabric provider that stock MPICH loads.
