/* Memory, order, errors and questions of the reference device, seen through its table. The operators are in ref_ops_test.c. */
#define _POSIX_C_SOURCE 200809L
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "numbers.h"
#include "test_device.h"

void test_memory(void) {
  void *first = NULL, *second = NULL, *third = NULL;
  OK(plugin->memory->allocate(device, 100000, &first));
  OK(plugin->memory->allocate(device, 1, &second));
  CHECK((uintptr_t)first % 64 == 0 && (uintptr_t)second % 64 == 0);
  CHECK((uintptr_t)second >= (uintptr_t)first + 100000 + 64 || (uintptr_t)first >= (uintptr_t)second + 1 + 64);

  unsigned char bytes[100000], zeros[100000] = {0};
  from_device(bytes, first, sizeof bytes);
  CHECK(memcmp(bytes, zeros, sizeof bytes) == 0);
  memset(bytes, 7, sizeof bytes);
  choral_copy copy = {CHORAL_HEADER(choral_copy), CHORAL_HOST_TO_DEVICE, 0, first, 0, bytes, 0, sizeof bytes, 1};
  OK(plugin->memory->copy(device, stream, &copy));
  plugin->memory->release(device, first);
  OK(plugin->memory->allocate(device, 100000, &third));
  CHECK(third == first); /* first fit … */
  from_device(bytes, third, sizeof bytes);
  CHECK(memcmp(bytes, zeros, sizeof bytes) == 0); /* … and cleared */

  copy.to = third;
  copy.row_bytes = 100001;
  unsigned char* longer = calloc(1, 100001);
  copy.from = longer;
  REFUSED(plugin->memory->copy(device, stream, &copy), "one allocation");
  free(longer);
  copy.to = bytes; /* host memory where the device's belongs */
  copy.row_bytes = 1;
  REFUSED(plugin->memory->copy(device, stream, &copy), "one allocation");
  void* none = NULL;
  REFUSED(plugin->memory->allocate(device, UINT64_C(1) << 33, &none), "no room");
  REFUSED(plugin->memory->allocate(device, UINT64_MAX, &none), "no room");
  CHECK(none == NULL);
  plugin->memory->release(device, second);
  plugin->memory->release(device, third);
  plugin->memory->release(device, NULL);
}

void test_copies(void) {
  int32_t host[4][5], back[4][3];
  memset(back, 0, sizeof back);
  for (int i = 0; i < 20; ++i) host[i / 5][i % 5] = i;
  int32_t* there = to_device(host, sizeof host);
  /* The middle three columns, moved one row down on the device, then fetched. */
  choral_copy copy = {CHORAL_HEADER(choral_copy), CHORAL_DEVICE_TO_DEVICE, 0, there + 15, 20, there + 1, 20, 12, 1};
  OK(plugin->memory->copy(device, stream, &copy));
  copy.kind = CHORAL_DEVICE_TO_HOST;
  copy.to = back;
  copy.to_pitch = sizeof back[0];
  copy.rows = 4;
  OK(plugin->memory->copy(device, stream, &copy));
  CHECK(back[0][0] == 1 && back[2][2] == 13 && back[3][0] == 2 && back[3][1] == 3 && back[3][2] == 18);

  /* Host memory is the device's only during the call. */
  float value = 1.0f;
  float* number = to_device(&value, sizeof value);
  for (int i = 0; i < 1000; ++i) { /* more than the queue holds */
    value = (float)i;
    choral_copy one = {CHORAL_HEADER(choral_copy), CHORAL_HOST_TO_DEVICE, 0, number, 0, &value, 0, sizeof value, 1};
    OK(plugin->memory->copy(device, stream, &one));
    value = -1.0f;
  }
  from_device(&value, number, sizeof value);
  CHECK(value == 999.0f);
  plugin->memory->release(device, number);
  plugin->memory->release(device, there);
}

/* Another thread fills a block on a stream of its own … */
typedef struct beside {
  choral_stream* stream;
  int32_t* there;
} beside;
enum { kBeside = 1000 };

static void* copy_beside(void* context) {
  const beside* mine = context;
  for (int32_t i = 0; i < kBeside; ++i) {
    const choral_copy one = {CHORAL_HEADER(choral_copy), CHORAL_HOST_TO_DEVICE, 0, mine->there + i, 0, &i, 0, sizeof i, 1};
    OK(plugin->memory->copy(device, mine->stream, &one));
  }
  OK(plugin->memory->stream_synchronize(device, mine->stream));
  return NULL;
}

/* … while this one takes memory, gives it back and copies. */
void test_copies_beside(void) {
  int32_t values[kBeside] = {0};
  beside theirs = {NULL, to_device(values, sizeof values)};
  CHECK(plugin->memory->copies_beside);
  OK(plugin->memory->stream_create(device, &theirs.stream));
  OK(plugin->memory->stream_synchronize(device, stream)); /* the zeros are there */
  pthread_t thread;
  CHECK(pthread_create(&thread, NULL, copy_beside, &theirs) == 0);
  for (int i = 0; i < 100; ++i) {
    float value = (float)i;
    float* number = to_device(&value, sizeof value);
    from_device(&value, number, sizeof value);
    CHECK(value == (float)i);
    plugin->memory->release(device, number);
  }
  pthread_join(thread, NULL);
  from_device(values, theirs.there, sizeof values);
  for (int32_t i = 0; i < kBeside; ++i) CHECK(values[i] == i);
  plugin->memory->stream_destroy(device, theirs.stream);
  plugin->memory->release(device, theirs.there);
}

static sigjmp_buf before_touch;

static void on_fault(int number) {
  (void)number;
  siglongjmp(before_touch, 1);
}

static int faults(volatile unsigned char* byte, int write) {
  if (sigsetjmp(before_touch, 1) != 0) return 1;
  if (write) {
    *byte = 1;
  } else {
    (void)*byte;
  }
  return 0;
}

void test_touching_faults(void) {
  unsigned char bytes[100] = {0};
  unsigned char* there = to_device(bytes, sizeof bytes);
  struct sigaction action, before;
  memset(&action, 0, sizeof action);
  action.sa_handler = on_fault;
  sigaction(SIGSEGV, &action, &before);
  const int seen = faults(there, 0) + faults(there + 99, 1) + faults(there + 100, 0);
  const int fine = !faults(bytes, 1);
  sigaction(SIGSEGV, &before, NULL);
  CHECK(seen == 3 && fine);
  plugin->memory->release(device, there);
  unsigned char* again = to_device(bytes, sizeof bytes);
  CHECK(again == there);
  plugin->memory->release(device, again);
}

void test_order_and_errors(void) {
  const float numbers[4] = {1, 2, 3, 4};
  const choral_matrix x = matrix_to_device(numbers, 2, 2, 2), y = matrix_to_device(numbers, 2, 2, 2);
  choral_unary_args add = {CHORAL_HEADER(choral_unary_args), x, y};
  for (int i = 0; i < 600; ++i) OK(run("add", &add));
  OK(plugin->memory->stream_synchronize(device, stream));
  float sums[4];
  from_device(sums, y.data, sizeof sums);
  CHECK(sums[0] == 601 && sums[3] == 4 * 601);

  /* Wrong arguments are refused at once … */
  choral_unary_args wrong = add;
  wrong.x.cols = 3;
  REFUSED(run("add", &wrong), "shape");
  wrong = add;
  wrong.x.dtype = CHORAL_BF16;
  REFUSED(run("add", &wrong), "type");
  wrong = add;
  wrong.y.data = sums;
  REFUSED(run("add", &wrong), "add y");
  wrong = add;
  wrong.y.rows = wrong.x.rows = 3;
  REFUSED(run("add", &wrong), "add x");
  /* … wrong contents when the queue comes to them; what is queued behind is not done, and the next synchronising is fine. */
  const int64_t slots[1] = {32};
  int64_t* there = to_device(slots, sizeof slots);
  float block[32 * 2 + 32 * 16] = {0};
  float* cache = to_device(block, sizeof block);
  choral_write_kv_args write = {
      CHORAL_HEADER(choral_write_kv_args), {cache, cache + 64, CHORAL_F32, 32, 1, 1, 2, 2}, x, x, there};
  write.k.rows = write.v.rows = 1;
  OK(run("write_kv", &write));
  OK(run("add", &add));
  REFUSED(plugin->memory->stream_synchronize(device, stream), "slot 32");
  OK(plugin->memory->stream_synchronize(device, stream));
  from_device(sums, y.data, sizeof sums);
  CHECK(sums[0] == 601);
  OK(run("write_kv", &write));
  choral_copy back = {CHORAL_HEADER(choral_copy), CHORAL_DEVICE_TO_HOST, 0, sums, 0, y.data, 0, sizeof sums, 1};
  sums[0] = -5;
  REFUSED(plugin->memory->copy(device, stream, &back), "slot 32");
  CHECK(sums[0] == -5);

  REFUSED(plugin->memory->stream_synchronize(device, NULL), "stream");
  plugin->memory->release(device, cache);
  plugin->memory->release(device, there);
  plugin->memory->release(device, x.data);
  plugin->memory->release(device, y.data);
}

/* Every half there is survives the way out and back; between two halves the nearer one wins, the even one on a tie. */
void test_small_floats(void) {
  for (uint32_t half = 0; half < 0x7c00; ++half) {
    const float value = ref_from_f16((uint16_t)half), next = ref_from_f16((uint16_t)(half + 1));
    CHECK(ref_to_f16(value) == half && ref_to_f16(-value) == (half | 0x8000));
    if (half == 0x7bff) break;
    const float middle = value + (next - value) / 2;
    CHECK(ref_to_f16(middle) == (half + 1) / 2 * 2);
    CHECK(ref_to_f16(value + (next - value) / 4) == half && ref_to_f16(next - (next - value) / 4) == half + 1);
  }
  CHECK(ref_to_f16(65519.0f) == 0x7bff && ref_to_f16(65520.0f) == 0x7c00 && ref_from_f16(0x7c00) > 1e38f);
  CHECK(ref_from_f16(0x7e00) != ref_from_f16(0x7e00) && ref_to_f16(ref_from_bits(0x7fc00000)) == 0x7e00);
  CHECK(ref_to_bf16(ref_from_bits(0x3f808000)) == 0x3f80 && ref_to_bf16(ref_from_bits(0x3f818000)) == 0x3f82);
  CHECK(ref_to_bf16(ref_from_bits(0x7f800001)) == 0x7fc0 && ref_from_bf16(0x4049) == 3.140625f);
}

void test_questions(void) {
  choral_op_query query = {
      .header = CHORAL_HEADER(choral_op_query), .name = "paged_attention", .version = 1, .kv_dtype = CHORAL_BF16};
  choral_support support = {.header = CHORAL_HEADER(choral_support)};
  OK(plugin->supports_op(device, &query, &support));
  CHECK(support.verdict == CHORAL_YES);
  query.kv_dtype = CHORAL_I8;
  OK(plugin->supports_op(device, &query, &support));
  CHECK(support.verdict == CHORAL_NO && strstr(support.reason, "bf16") != NULL);
  query.name = "matmul";
  OK(plugin->supports_op(device, &query, &support));
  CHECK(support.verdict == CHORAL_YES && support.reason[0] == '\0');
  query.version = 2;
  OK(plugin->supports_op(device, &query, &support));
  CHECK(support.verdict == CHORAL_NO && strstr(support.reason, "version") != NULL);

  choral_config config = {
      .header = CHORAL_HEADER(choral_config), .max_num_seqs = 64, .worker_cls = "auto", .scheduler = "priority"};
  OK(plugin->check_and_update_config(&config));
  CHECK(strcmp(config.worker_cls, "ref_device") == 0 && strcmp(config.custom_ops, "all") == 0);
  CHECK(strcmp(config.scheduler, "priority") == 0 && config.max_num_seqs == 64);
  strcpy(config.worker_cls, "mine");
  strcpy(config.custom_ops, "none");
  OK(plugin->check_and_update_config(&config));
  CHECK(strcmp(config.worker_cls, "mine") == 0 && strcmp(config.custom_ops, "none") == 0);
  config.max_num_seqs = 4097;
  REFUSED(plugin->check_and_update_config(&config), "4096");

  /* A host that knows less: what lies beyond its struct is not touched. */
  choral_config shorter = {.max_num_seqs = 1, .worker_cls = "auto", .custom_ops = "untouched"};
  shorter.header.struct_size = (uint32_t)((const char*)&shorter.scheduler - (const char*)&shorter);
  shorter.header.abi_major = CHORAL_ABI_MAJOR;
  OK(plugin->check_and_update_config(&shorter));
  CHECK(strcmp(shorter.worker_cls, "ref_device") == 0 && strcmp(shorter.custom_ops, "untouched") == 0);
}
