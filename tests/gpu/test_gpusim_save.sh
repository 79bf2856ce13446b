#!/bin/bash
# usage: test_gpusim_save.sh
#
# Saves of simulated GPUs (tests/gpusim), while training continues.  If this fails, a save
# holds numbers of two steps, or what keeps them apart is not seen by any test.
#
#   saves     test_ztrain_save.sh with --device cuda: 1 and 2 ranks, stages, all of the memory and little
#   waits     between a copy and the update that overwrites it: each that is skipped is reported
set -u
here=$(cd "$(dirname "$0")" && pwd)
export ZTRAIN=${ZTRAIN:-${ZCKPT_BUILD:-$here/../../build}/ztrain-gpusim}
# shellcheck source=tests/engine/ztrain.sh
. "$here/../engine/ztrain.sh"
copies=$(dirname "$(readlink -f "$ztrain")")/gpusim/tests/gpu/test_cuda_save
export FAKE_NCCL_TIMEOUT=60 FAKE_GPU_SEED=${ZCKPT_SEED:-7}

ZTRAIN_DEVICE=cuda "$here/../engine/test_ztrain_save.sh" > said 2>&1 && good || bad 'saves'

# The first run of it has no copies; from here on are those of two steps.
told=0
for ((k = 36; k < 60; k++)); do
	(FAKE_GPU_DROP_WAIT=$k exec "$copies" 0) > said 2>&1 && continue
	grep -q 'a wait is missing.*a copy, .*kn_cu_adam\|a wait is missing.*kn_cu_adam.*a copy, ' said && told=$((told + 1))
done 2> /dev/null	# the shell reports each that was aborted
[ $told -ge 10 ] && good || bad "waits between copies and updates: $told were reported"
finish
