#include "support/plugin_layout.h"

#include "choral/plugin.h"

#define STRUCT(type) {"struct", #type, 0, sizeof(type)},
#define FIELD(type, field) {"field", #type "." #field, offsetof(type, field), sizeof(((type*)0)->field)},
#define NUMBER(name) {"number", #name, 0, name},

static const plugin_layout_line lines[] = {
#include "support/plugin_layout_list_inl.h"
};

const plugin_layout_line* plugin_layout_in_c(size_t* count) {
  *count = sizeof lines / sizeof *lines;
  return lines;
}
