# gpusim.sh -- read by the tests of ztrain with simulated GPUs (tests/gpusim): tests/engine/ztrain.sh
# with ztrain-gpusim as its program.
#
#   data                 rows of tokens to train on, of the fixtures
#   FAKE_NCCL_TIMEOUT    ranks that are waited for are given up after a minute
ZTRAIN=${ZTRAIN:-${ZCKPT_BUILD:-$(cd "$(dirname "$0")/../.." && pwd)/build}/ztrain-gpusim}
export FAKE_NCCL_TIMEOUT=60
# shellcheck source=tests/engine/ztrain.sh
. "$(dirname "$0")/../engine/ztrain.sh"
# shellcheck disable=SC2034
data=${models%/models}/train/data.safetensors
