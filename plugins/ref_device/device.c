#include "device.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "queue.h"

const choral_host* ref_host;

/* More than the host keeps of a text, so that it is the host who cuts one, and says so. */
enum { kTextBytes = 4200 };

choral_status* ref_error(int32_t code, const char* format, ...) {
  char text[kTextBytes];
  int length = snprintf(text, sizeof text, "ref_device: ");
  va_list list;
  va_start(list, format);
  vsnprintf(text + length, sizeof text - (size_t)length, format, list);
  va_end(list);
  return ref_host->status_create(code, text);
}

void ref_log(int32_t level, const char* format, ...) {
  char text[kTextBytes];
  int length = snprintf(text, sizeof text, "ref_device: ");
  va_list list;
  va_start(list, format);
  vsnprintf(text + length, sizeof text - (size_t)length, format, list);
  va_end(list);
  ref_host->log(level, text);
}

void ref_read(void* ours, const void* theirs, size_t our_size) {
  const choral_header* header = theirs;
  const size_t known = header->struct_size < our_size ? header->struct_size : our_size;
  memset(ours, 0, our_size);
  memcpy(ours, theirs, known);
}

void ref_write(void* theirs, const void* ours, size_t our_size) {
  const choral_header* header = theirs;
  const size_t known = header->struct_size < our_size ? header->struct_size : our_size;
  if (known <= sizeof *header) return;
  memcpy((unsigned char*)theirs + sizeof *header, (const unsigned char*)ours + sizeof *header, known - sizeof *header);
}

uint64_t ref_region_bytes(void) {
  const char* text = getenv("CHORAL_REF_MEMORY_MIB");
  const uint64_t mib = text == NULL ? 0 : strtoull(text, NULL, 10);
  return (mib == 0 || mib > 1u << 20 ? 8u << 10 : mib) << 20; /* 8 GiB unless said otherwise; 1 TiB at most */
}

choral_status* ref_open(const choral_device_config* theirs, choral_device** result) {
  choral_device_config config;
  ref_read(&config, theirs, sizeof config);
  if (config.index < 0 || config.index >= REF_DEVICES) {
    return ref_error(CHORAL_INVALID_ARGUMENT, "there is no device %d, only 0 to %d", config.index, REF_DEVICES - 1);
  }
  choral_device* device = calloc(1, sizeof *device);
  if (device == NULL) return ref_error(CHORAL_RESOURCE_EXHAUSTED, "no host memory for a device");
  device->pool = config.pool;
  choral_status* status = ref_memory_open(&device->memory, ref_region_bytes());
  if (status != NULL) {
    free(device);
    return status;
  }
  *result = device;
  return NULL;
}

void ref_close(choral_device* device) {
  if (device == NULL) return;
  while (device->streams != NULL) ref_stream_destroy(device, device->streams);
  ref_log(CHORAL_LOG_DEBUG, "closed after %lld operator calls, %lld of rms_norm in this plug-in's form, %lld steps",
          (long long)device->op_calls, (long long)device->oot_calls, (long long)device->steps);
  ref_memory_close(&device->memory); /* the fused library stays loaded, as the plug-in does */
  free(device);
}

int64_t ref_fault_mark(void) {
  const char* text = getenv("CHORAL_REF_FAULT_AT");
  const int64_t mark = text == NULL ? 0 : strtoll(text, NULL, 10);
  return mark > 0 ? mark : 100;
}

int64_t ref_counted_calls(const choral_device* device) {
  const int64_t tried = __atomic_load_n(&device->tried_calls, __ATOMIC_RELAXED);
  return tried == 0 ? 0 : __atomic_load_n(&device->op_calls, __ATOMIC_RELAXED) - tried;
}

int ref_is_lost(const choral_device* device) { return ref_fault.lose && ref_counted_calls(device) >= ref_fault_mark(); }
