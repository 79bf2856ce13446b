#!/bin/sh
# usage: test_comm_tcp.sh
#
# The same as test_comm_mpi.sh, of ranks that were started without MPI and talk by TCP.
exec bash "$(dirname "$0")/test_comm_mpi.sh" tcp
