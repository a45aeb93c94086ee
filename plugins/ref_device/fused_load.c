/* The fused operators come late and from another file, as kernels that are compiled for one chip do. */
#define _GNU_SOURCE /* dladdr */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "device.h"
#include "fused.h"
#include "ops.h"

static const ref_services services = {
    REF_FUSED_NUMBER, ref_read,      ref_fail,           ref_expect,      ref_map_array,   ref_map_matrix,
    ref_map_vector,   ref_map_cache, ref_grouped_matmul, ref_lora_shrink, ref_lora_expand, ref_submit,
};

/* CHORAL_REF_FUSED, or the file beside the one this code is in. */
static int fused_path(char* path, size_t size) {
  const char* named = getenv("CHORAL_REF_FUSED");
  Dl_info here;
  if (named != NULL && named[0] != '\0') return snprintf(path, size, "%s", named) < (int)size;
  if (dladdr((const void*)&services, &here) == 0 || here.dli_fname == NULL) return 0;
  const char* slash = strrchr(here.dli_fname, '/');
  const int folder = slash == NULL ? 0 : (int)(slash + 1 - here.dli_fname);
  return snprintf(path, size, "%.*slibchoral_ref_fused.so", folder, here.dli_fname) < (int)size;
}

choral_status* ref_load_fused_ops(choral_device* device, const choral_op** ops, int64_t* op_count) {
  const char* remedy = "put libchoral_ref_fused.so of the same build beside the plug-in, or name it in CHORAL_REF_FUSED";
  char path[4096];
  __atomic_store_n(&device->tried_calls, device->op_calls, __ATOMIC_RELAXED);
  if (!fused_path(path, sizeof path))
    return ref_error(CHORAL_UNSUPPORTED, "cannot tell where the fused operators are; %s", remedy);
  /* A file that was removed is gone, even where an earlier device of this process still holds it open. */
  if (access(path, R_OK) != 0) return ref_error(CHORAL_UNSUPPORTED, "no fused operators: %s is not there; %s", path, remedy);
  void* library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (library == NULL) {
    const char* reason = dlerror();
    return ref_error(CHORAL_UNSUPPORTED, "no fused operators: %s; %s", reason == NULL ? path : reason, remedy);
  }
  ref_fused_ops_fn query;
  void* symbol = dlsym(library, REF_FUSED_OPS);
  memcpy(&query, &symbol, sizeof query); /* ISO C knows no way from an object's pointer to a function's */
  int64_t count = 0;
  const choral_op* found = symbol == NULL ? NULL : query(&services, &count);
  if (found == NULL) {
    dlclose(library);
    return ref_error(CHORAL_UNSUPPORTED, "no fused operators: %s is of another build; %s", path, remedy);
  }
  device->fused_library = library; /* stays open: its functions are in the host's tables */
  *ops = found;
  *op_count = count;
  return NULL;
}
