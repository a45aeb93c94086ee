#define _POSIX_C_SOURCE 200809L
#include "test_device.h"

#include <dlfcn.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const choral_plugin* plugin;
choral_device* device;
choral_stream* stream;

struct choral_status {
  int32_t code;
  char message[512];
};

static void host_log(int32_t level, const char* text) { printf("  [%d] %s\n", level, text); }

static void* host_allocate(uint64_t size, uint64_t alignment) {
  void* memory = NULL;
  return posix_memalign(&memory, alignment < sizeof(void*) ? sizeof(void*) : alignment, size) == 0 ? memory : NULL;
}

static choral_status* host_status(int32_t code, const char* message) {
  choral_status* status = calloc(1, sizeof *status);
  if (status == NULL) abort();
  status->code = code;
  snprintf(status->message, sizeof status->message, "%s", message);
  return status;
}

/* In uneven parts and from the end, so that order does not matter by chance. */
static choral_status* host_parallel_for(choral_pool* pool, int64_t count, int64_t grain, choral_range_fn body, void* context) {
  (void)pool;
  for (int64_t end = count; end > 0;) {
    const int64_t begin = end > 3 * grain ? end - 3 * grain : 0;
    body(context, begin, end);
    end = begin;
  }
  return NULL;
}

static void host_status_release(choral_status* status) { free(status); }

static const choral_host host = {CHORAL_HEADER(choral_host), host_log,         host_allocate, free, host_status,
                                 host_status_release,        host_parallel_for};

void test_check(int good, const char* text, const char* file, int line) {
  if (good) return;
  printf("%s:%d: failed: %s\n", file, line, text);
  exit(1);
}

void test_ok(choral_status* status, const char* text, const char* file, int line) {
  if (status == NULL) return;
  printf("%s:%d: %s: %s\n", file, line, text, status->message);
  exit(1);
}

void test_refused(choral_status* status, const char* word, const char* text, const char* file, int line) {
  if (status == NULL || strstr(status->message, word) == NULL) {
    printf("%s:%d: %s: wanted an error with \"%s\", got: %s\n", file, line, text, word,
           status == NULL ? "none" : status->message);
    exit(1);
  }
  free(status);
}

float noise(void) {
  static uint32_t state = 1;
  state = state * 1664525u + 1013904223u;
  return (float)(int32_t)state * 0x1p-31f;
}

void fill(float* values, int64_t count) {
  for (int64_t i = 0; i < count; ++i) values[i] = noise();
}

void* to_device(const void* values, int64_t bytes) {
  void* memory = NULL;
  OK(plugin->memory->allocate(device, (uint64_t)bytes, &memory));
  const choral_copy copy = {CHORAL_HEADER(choral_copy), CHORAL_HOST_TO_DEVICE, 0, memory, bytes, values, bytes, bytes, 1};
  OK(plugin->memory->copy(device, stream, &copy));
  return memory;
}

void from_device(void* values, const void* memory, int64_t bytes) {
  const choral_copy copy = {CHORAL_HEADER(choral_copy), CHORAL_DEVICE_TO_HOST, 0, values, bytes, memory, bytes, bytes, 1};
  OK(plugin->memory->copy(device, stream, &copy));
}

choral_matrix matrix_to_device(const float* values, int64_t rows, int64_t cols, int64_t stride) {
  const choral_matrix matrix = {to_device(values, rows * stride * (int64_t)sizeof(float)), rows, cols, stride, CHORAL_F32, 0};
  return matrix;
}

choral_vector vector_to_device(const float* values, int64_t size) {
  const choral_vector vector = {to_device(values, size * (int64_t)sizeof(float)), size, CHORAL_F32, 0};
  return vector;
}

/* Elements lie as far apart as the plug-in says, which may be more than our sizeof. */
const choral_op* find_op(const choral_op* ops, int64_t count, const char* name) {
  const char* first = (const char*)ops;
  for (int64_t i = 0; i < count; ++i) {
    const choral_op* op = (const choral_op*)(const void*)(first + i * ops->header.struct_size);
    if (strcmp(op->name, name) == 0) return op;
  }
  return NULL;
}

choral_status* run(const char* name, const void* args) {
  const choral_op* op = find_op(plugin->ops, plugin->op_count, name);
  if (op != NULL) return op->run(device, stream, args);
  return host_status(CHORAL_UNSUPPORTED, name);
}

int near(double a, double b, double tolerance) { return fabs(a - b) <= tolerance; }

int main(int argc, char** argv) {
  setvbuf(stdout, NULL, _IONBF, 0);
  CHECK(argc == 2);
  void* library = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
  if (library == NULL) printf("%s\n", dlerror());
  CHECK(library != NULL);
  void* symbol = dlsym(library, CHORAL_PLUGIN_QUERY);
  choral_plugin_query_fn query;
  memcpy(&query, &symbol, sizeof query);
  CHECK(query != NULL);
  plugin = query(&host);
  CHECK(plugin != NULL && plugin->header.abi_major == CHORAL_ABI_MAJOR && plugin->header.struct_size >= sizeof *plugin);
  CHECK(query(&host) == plugin);

  choral_probe probe = {.header = CHORAL_HEADER(choral_probe)};
  OK(plugin->probe(&probe));
  CHECK(probe.device_count == 2 && probe.score == 10 && probe.host_accessible == 0 && probe.memory_bytes == UINT64_C(1) << 33);

  for (int life = 0; life < 3; ++life) { /* a device can be opened again, and there are two */
    choral_device_config config = {.header = CHORAL_HEADER(choral_device_config)};
    config.index = 2;
    REFUSED(plugin->open_device(&config, &device), "no device 2");
    config.index = life % 2;
    OK(plugin->open_device(&config, &device));
    OK(plugin->memory->stream_create(device, &stream));
    const struct {
      const char* name;
      void (*body)(void);
    } tests[] = {{"memory", test_memory},
                 {"copies", test_copies},
                 {"copies_beside", test_copies_beside},
                 {"touching faults", test_touching_faults},
                 {"order and errors", test_order_and_errors},
                 {"small floats", test_small_floats},
                 {"questions", test_questions},
                 {"weights", test_weights},
                 {"matmul", test_matmul},
                 {"int8", test_int8},
                 {"rows", test_rows},
                 {"rotary", test_rotary},
                 {"attention", test_attention},
                 {"fused", test_fused},
                 {"lora", test_lora}};
    for (size_t i = 0; i < sizeof tests / sizeof *tests; ++i) {
      printf("%s\n", tests[i].name);
      tests[i].body();
    }
    plugin->memory->stream_destroy(device, stream);
    plugin->close_device(device);
  }
  printf("all fine\n");
  return 0;
}
