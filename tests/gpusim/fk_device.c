/* fk_device.c -- which devices there are, and what errors are called. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/gpusim/fk.h"

static int current;

/* The number that a visible device has among all, -1 if there is none. */
static int number(int device)
{
	const int all = (int)fk_env("FAKE_GPUS", 8);
	const char *list = getenv("CUDA_VISIBLE_DEVICES");

	if (!list)
		return device >= 0 && device < all ? device : -1;
	for (; *list; device--) {
		char *end;
		const long n = strtol(list, &end, 10);

		if (end == list || n < 0 || n >= all)
			return -1;	/* what follows is not seen either */
		if (!device)
			return (int)n;
		list = *end == ',' ? end + 1 : end;
	}
	return -1;
}

cudaError_t cudaGetDeviceCount(int *n)
{
	for (*n = 0; number(*n) >= 0; ++*n)
		;
	return *n ? cudaSuccess : cudaErrorNoDevice;
}

cudaError_t cudaGetDevice(int *device)
{
	*device = current;
	return cudaSuccess;
}

cudaError_t cudaSetDevice(int device)
{
	if (number(device) < 0)
		return fk_error(cudaErrorInvalidDevice);
	current = device;
	return cudaSuccess;
}

cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *prop, int device)
{
	size_t free_bytes;
	const int n = number(device);

	if (n < 0)
		return fk_error(cudaErrorInvalidDevice);
	memset(prop, 0, sizeof(*prop));
	snprintf(prop->name, sizeof(prop->name), "a fake GPU");
	memcpy(prop->uuid.bytes, "fake GPU", 8);
	memcpy(prop->uuid.bytes + 8, &n, sizeof(n));
	cudaMemGetInfo(&free_bytes, &prop->totalGlobalMem);
	prop->major = 9;
	prop->multiProcessorCount = 132;
	prop->pciBusID = n + 1;
	return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr attr, int device)
{
	struct cudaDeviceProp p;
	const cudaError_t rc = cudaGetDeviceProperties(&p, device);

	if (rc)
		return rc;
	switch (attr) {
	case cudaDevAttrMultiProcessorCount: *value = p.multiProcessorCount; break;
	case cudaDevAttrPciBusId: *value = p.pciBusID; break;
	case cudaDevAttrPciDeviceId: *value = p.pciDeviceID; break;
	case cudaDevAttrPciDomainId: *value = p.pciDomainID; break;
	case cudaDevAttrComputeCapabilityMajor: *value = p.major; break;
	case cudaDevAttrComputeCapabilityMinor: *value = p.minor; break;
	default: return fk_error(cudaErrorInvalidValue);
	}
	return cudaSuccess;
}

cudaError_t cudaDeviceGetPCIBusId(char *text, int size, int device)
{
	struct cudaDeviceProp p;
	const cudaError_t rc = cudaGetDeviceProperties(&p, device);

	if (!rc)
		snprintf(text, (size_t)size, "0000:%02X:00.0", (unsigned)p.pciBusID);
	return rc;
}

cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *greatest)
{
	*least = 0;
	*greatest = -5;
	return cudaSuccess;
}

cudaError_t cudaDeviceCanAccessPeer(int *can, int device, int peer)
{
	*can = 0;
	return number(device) < 0 || number(peer) < 0 ? cudaErrorInvalidDevice : cudaSuccess;
}

cudaError_t cudaRuntimeGetVersion(int *version)
{
	*version = CUDART_VERSION;
	return cudaSuccess;
}

cudaError_t cudaDriverGetVersion(int *version)
{
	return cudaRuntimeGetVersion(version);
}

static _Thread_local cudaError_t last_error;

cudaError_t fk_error(cudaError_t rc)
{
	last_error = rc;
	return rc;
}

cudaError_t cudaGetLastError(void)
{
	const cudaError_t rc = last_error;

	last_error = cudaSuccess;
	return rc;
}

cudaError_t cudaPeekAtLastError(void)
{
	return last_error;
}

const char *cudaGetErrorName(cudaError_t e)
{
	switch (e) {
	case cudaSuccess: return "cudaSuccess";
	case cudaErrorInvalidValue: return "cudaErrorInvalidValue";
	case cudaErrorMemoryAllocation: return "cudaErrorMemoryAllocation";
	case cudaErrorInvalidHostPointer: return "cudaErrorInvalidHostPointer";
	case cudaErrorInvalidMemcpyDirection: return "cudaErrorInvalidMemcpyDirection";
	case cudaErrorNoDevice: return "cudaErrorNoDevice";
	case cudaErrorInvalidDevice: return "cudaErrorInvalidDevice";
	case cudaErrorInvalidResourceHandle: return "cudaErrorInvalidResourceHandle";
	case cudaErrorNotReady: return "cudaErrorNotReady";
	case cudaErrorHostMemoryAlreadyRegistered: return "cudaErrorHostMemoryAlreadyRegistered";
	case cudaErrorHostMemoryNotRegistered: return "cudaErrorHostMemoryNotRegistered";
	case cudaErrorNotSupported: return "cudaErrorNotSupported";
	default: return "cudaErrorUnknown";
	}
}

const char *cudaGetErrorString(cudaError_t e)
{
	switch (e) {
	case cudaSuccess: return "no error";
	case cudaErrorInvalidValue: return "invalid argument";
	case cudaErrorMemoryAllocation: return "out of memory";
	case cudaErrorNoDevice: return "no CUDA-capable device is detected";
	case cudaErrorInvalidDevice: return "invalid device ordinal";
	case cudaErrorInvalidResourceHandle: return "invalid resource handle";
	case cudaErrorNotReady: return "device not ready";
	default: return "an error of the fake GPU";
	}
}
