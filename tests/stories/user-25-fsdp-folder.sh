# A folder that FSDP wrote is refused by its name; nothing half converted appears.
# shellcheck source=tests/stories/story.sh
. "$(dirname "$0")/story.sh"
folder=$fixtures/formats/dcp
[ -d "$folder" ] || { echo "$folder is missing" >&2; exit 77; }
folder=$(find "$folder/v2.11" -name .metadata -printf '%h\n' | sort | head -n 1)
[ -n "$folder" ] || { echo 'the fixtures have no folder of DCP' >&2; exit 77; }

types 3 zckpt convert "$folder" m.safetensors
answers torch.distributed.checkpoint
absent m.safetensors
