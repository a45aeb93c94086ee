/* The layout of choral/plugin.h as a compiler of C sees it: what vendors' compilers will see. Constant tables. */
#pragma once

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct plugin_layout_line {
  const char* kind; /* "struct", "field", "number" */
  const char* name; /* "choral_host", "choral_host.log", "CHORAL_F16" */
  size_t offset;    /* of a field */
  size_t value;     /* size, or the number */
} plugin_layout_line;

const plugin_layout_line* plugin_layout_in_c(size_t* count);

#ifdef __cplusplus
}
#endif
