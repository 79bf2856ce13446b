# The converter of DeepSpeed was killed for its memory; here 300 MB of address space suffice.
# shellcheck source=tests/stories/story.sh
. "$(dirname "$0")/story.sh"
case=ds0.19.8-z3-bf16-w2-frozen

types 0 bash -c "case ${ZCKPT_SAN:-}\$(ldd \$(command -v zckpt)) in *asan*|*tsan*) ;; *) ulimit -v 300000 ;; esac; exec zckpt convert '$steps/$case/ckpt' m.safetensors"
masters m.safetensors $case
