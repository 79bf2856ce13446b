/* en_cuda_device.c -- GPUs that this process sees, and what each of them is. */
#include <stdio.h>
#include <string.h>

#include "engine/zero/cuda/en_cuda_priv.h"

bool en_cuda_is_built(void)
{
	return true;
}

uint32_t en_cuda_count(void)
{
	int n = 0;

	return cudaGetDeviceCount(&n) == cudaSuccess && n > 0 ? (uint32_t)n : 0;
}

static void uuid_text(const cudaUUID_t *uuid, char *text, size_t n)
{
	size_t at = (size_t)snprintf(text, n, "GPU");

	for (size_t i = 0; i < sizeof(uuid->bytes); i++) {
		const bool dash = !i || i == 4 || i == 6 || i == 8 || i == 10;

		at += (size_t)snprintf(text + at, n - at, dash ? "-%02x" : "%02x",
				       (unsigned)(uint8_t)uuid->bytes[i]);
	}
}

int en_cuda_device(uint32_t n, struct en_cuda_device *out, struct ckpt_err *err)
{
	struct en_cuda_device d = { .bytes = 0 };
	struct cudaDeviceProp prop;
	size_t free_bytes = 0, bytes = 0;
	int rc = (int)cudaSetDevice((int)n);

	if (!rc)
		rc = (int)cudaGetDeviceProperties(&prop, (int)n);
	if (!rc)
		rc = (int)cudaDeviceGetPCIBusId(d.pci, sizeof(d.pci), (int)n);
	if (!rc)
		rc = (int)cudaMemGetInfo(&free_bytes, &bytes);
	if (rc)
		return en_cuda_cuda(rc, "the device", err);
	snprintf(d.name, sizeof(d.name), "%.79s", prop.name);
	uuid_text(&prop.uuid, d.uuid, sizeof(d.uuid));
	d.free_bytes = free_bytes;
	d.bytes = bytes;
	*out = d;
	return 0;
}
