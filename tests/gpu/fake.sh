# fake.sh -- read by the tests of ztrain with GPUs that are not there (tests/gpu/fake): tests/engine/ztrain.sh
# with ztrain-fake as its program.
#
#   data                 rows of tokens to train on, of the fixtures
#   FAKE_NCCL_TIMEOUT    ranks that are waited for are given up after a minute
ZTRAIN=${ZTRAIN:-${ZCKPT_BUILD:-$(cd "$(dirname "$0")/../.." && pwd)/build}/ztrain-fake}
export FAKE_NCCL_TIMEOUT=60
# shellcheck source=tests/engine/ztrain.sh
. "$(dirname "$0")/../engine/ztrain.sh"
# shellcheck disable=SC2034
data=${models%/models}/train/data.safetensors
