#!/bin/sh
# usage: test_ztrain_deaths_tcp.sh ['RANK SIGNAL PHASE STEPS N 0'...]
#
# The same as test_ztrain_deaths.sh, of ranks that were started without MPI and talk by TCP: nobody
# but they themselves sees that one of them is dead.
ZCKPT_START=tcp exec bash "$(dirname "$0")/test_ztrain_deaths.sh" "$@"
