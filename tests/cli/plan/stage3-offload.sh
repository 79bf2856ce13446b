# Stage 3 with everything on the host: terms of GPU and host, and DeepSpeed's own estimate.
zckpt plan llama-3-8b -n 16 --gpus-per-node 8 --stage 3 --offload params --accumulation 4 -v --deepspeed
