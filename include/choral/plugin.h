/* Choral's interface for devices that come as a shared library: plain C99, one exported symbol, no type of C++.
 *
 *   const choral_plugin* choral_plugin_query(const choral_host* host);
 *
 * Growth. Every struct that crosses the border begins with choral_header. Fields are only ever added at a struct's end and under
 * a higher minor version; a field that exists never moves and never changes its meaning. Each side reads min(struct_size, its own
 * size) bytes and takes what is missing as zero. Majors must be equal. A plug-in asks `host->header.abi_minor` before it uses a
 * newer field of the host's; the host does the same with the plug-in's. So old and new run with each other, with what both know.
 * In a table of structs the elements lie struct_size bytes apart, by the first element's header; walk it by that number, not by
 * your own sizeof. The few structs without a header (matrices, vectors, stacks, sequences, parts of a weight) never change.
 *
 * Errors. A call that can fail returns choral_status*: null is fine, anything else was made by host->status_create and belongs to
 * the host from then on. Nothing is thrown across the border; nothing aborts. A call that fails leaves its outputs as they were.
 *
 * Memory. What a plug-in hands out stays its own and valid until the named release call; strings and tables of choral_plugin stay
 * valid as long as the library is loaded, and the host never unloads it by itself. Device pointers are linear: the host adds
 * offsets to them but never reads or writes through one unless the probe said host_accessible.
 *
 * Threads. query, probe and open_device are called by one thread at a time. All calls on one device come from one thread at a
 * time, not always the same one; read_row apart, and copies of one more thread where the plug-in takes them (copies_beside). Work
 * is queued on the stream given and may run later; the host waits with stream_synchronize before it reads a result. Host memory
 * given to a call is only valid during the call: a queue must copy it.
 *
 * docs/plugins.md explains each part with an example; plugins/ref_device is a whole device against this header alone. */
#ifndef CHORAL_PLUGIN_H
#define CHORAL_PLUGIN_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define CHORAL_ABI_MAJOR 2
#define CHORAL_ABI_MINOR 0

#if defined(__GNUC__)
#define CHORAL_PLUGIN_EXPORT __attribute__((visibility("default")))
#else
#define CHORAL_PLUGIN_EXPORT
#endif

typedef struct choral_header {
  uint32_t struct_size; /* sizeof of the whole struct, as the side that filled it knows it */
  uint16_t abi_major;
  uint16_t abi_minor;
} choral_header;

#define CHORAL_HEADER(type) \
  { (uint32_t)sizeof(type), CHORAL_ABI_MAJOR, CHORAL_ABI_MINOR }

typedef struct choral_status choral_status; /* the host's */
typedef struct choral_pool choral_pool;     /* the host's threads */
typedef struct choral_device choral_device; /* the plug-in's, as are the next two */
typedef struct choral_stream choral_stream;
typedef struct choral_packed choral_packed; /* a weight in the device's own layout */

/* Codes of host->status_create. */
#define CHORAL_INVALID_ARGUMENT 1
#define CHORAL_UNSUPPORTED 5
#define CHORAL_RESOURCE_EXHAUSTED 7 /* out of device memory */
#define CHORAL_UNAVAILABLE 8        /* the device is gone */
#define CHORAL_INTERNAL 12

/* Levels of host->log. */
#define CHORAL_LOG_DEBUG 0
#define CHORAL_LOG_INFO 1
#define CHORAL_LOG_WARN 2
#define CHORAL_LOG_ERROR 3

/* Element types. */
#define CHORAL_F32 0
#define CHORAL_F16 1
#define CHORAL_BF16 2
#define CHORAL_I8 4
#define CHORAL_E4M3 10 /* 8-bit float */
#define CHORAL_Q8_0 12 /* GGUF's blocks, as files have them */
#define CHORAL_Q4_0 13
#define CHORAL_Q4_1 14
#define CHORAL_Q5_0 15
#define CHORAL_Q5_1 16
#define CHORAL_Q4_K 17
#define CHORAL_Q5_K 18
#define CHORAL_Q6_K 19
#define CHORAL_Q2_K 20
#define CHORAL_Q3_K 21
#define CHORAL_IQ4_NL 22
#define CHORAL_IQ4_XS 23
#define CHORAL_TQ1_0 24
#define CHORAL_TQ2_0 25
#define CHORAL_MXFP4 26
#define CHORAL_IQ1_S 28
#define CHORAL_IQ1_M 29
#define CHORAL_IQ2_XXS 30
#define CHORAL_IQ2_XS 31
#define CHORAL_IQ2_S 32
#define CHORAL_IQ3_XXS 33
#define CHORAL_IQ3_S 34

/* ---- What the host offers. ------------------------------------------------------------------------------------------------ */

typedef void (*choral_range_fn)(void* context, int64_t begin, int64_t end);
typedef struct choral_host {
  choral_header header;
  void (*log)(int32_t level, const char* text); /* one line, UTF-8, without its end */
  /* Host memory; null when there is none. The alignment is a power of two. No bytes are memory that can be released, too. */
  void* (*allocate)(uint64_t size_bytes, uint64_t alignment);
  void (*release)(void* memory); /* null is fine */
  /* message: what, where, what to do; of more than 4,095 bytes the rest is cut, and "…" says so. Never null. */
  choral_status* (*status_create)(int32_t code, const char* message);
  void (*status_release)(choral_status*); /* of one that is not handed on; null is fine */
  /* Calls body for parts of [0, count), of at least `grain` but the last one, on the host's compute threads, and waits. For use
   * within a call of the host's on the device whose pool it is, read_row apart: on the thread that was called, or on one that the
   * call waits for. Where no such call is under way body is not called, and the status says so. A pool that is at work (for
   * another thread, or because this is called by a body) leaves all to the calling thread. */
  choral_status* (*parallel_for)(choral_pool* pool, int64_t count, int64_t grain, choral_range_fn body, void* context);
} choral_host;

/* ---- Choosing a device. --------------------------------------------------------------------------------------------------- */

#define CHORAL_NAME_SIZE 64
#define CHORAL_REASON_SIZE 256

/* Made by the host, filled by probe(). Probing has no side effect that outlives it. */
typedef struct choral_probe {
  choral_header header;
  int32_t device_count;  /* 0: nothing usable here, and `reason` says why */
  int32_t score;         /* the highest one of all plug-ins wins when the user names none; the CPU has none */
  uint64_t memory_bytes; /* of a device, the smallest where they differ; 0: not said. By it the host goes without `capacity` */
  /* Not 0: the host reads and writes what `allocate` gives by the same pointers. It does so while nothing is queued on the stream
   * of its steps, and touches nothing of what copies beside them write. Without `capacity` such memory is the machine's own. */
  int32_t host_accessible;
  int32_t reserved;
  char device_name[CHORAL_NAME_SIZE]; /* "NVIDIA H200" */
  char reason[CHORAL_REASON_SIZE];
} choral_probe;

/* What the user asked for, before anything is built; the plug-in may change the fields marked (rw), or refuse with a status. A
 * text is NUL-terminated within its array. */
typedef struct choral_config {
  choral_header header;
  int32_t threads;
  int32_t max_num_seqs;
  int32_t max_num_batched_tokens;      /* rw */
  int32_t max_model_len;               /* 0: the model's */
  char architecture[CHORAL_NAME_SIZE]; /* "LlamaForCausalLM" */
  char dtype[CHORAL_NAME_SIZE];        /* of the weights: "auto", "bfloat16", … */
  char kv_cache_dtype[CHORAL_NAME_SIZE];
  char worker_cls[CHORAL_NAME_SIZE];        /* rw; "auto" lets the host choose */
  char scheduler[CHORAL_NAME_SIZE];         /* rw; "fcfs" or "priority" */
  char attention_backend[CHORAL_NAME_SIZE]; /* rw; "auto", "device" or "host" */
  char custom_ops[CHORAL_REASON_SIZE];      /* rw; "all", "none", "all,-rms_norm", … */
  char quantization[CHORAL_NAME_SIZE];      /* rw; "auto" or a name of --quantization */
} choral_config;

typedef struct choral_device_config {
  choral_header header;
  int32_t index; /* of the device_count devices */
  int32_t reserved;
  choral_pool* pool; /* the compute threads of this worker; until close_device returns */
} choral_device_config;

/* ---- Memory and order. ---------------------------------------------------------------------------------------------------- */

#define CHORAL_HOST_TO_DEVICE 0
#define CHORAL_DEVICE_TO_HOST 1
#define CHORAL_DEVICE_TO_DEVICE 2

/* Rows of bytes, each `pitch` bytes after the one before. A copy to or from the host is finished with host memory when it returns
 * (device to host: after everything queued before it on the stream), so it needs no synchronising. */
typedef struct choral_copy {
  choral_header header;
  int32_t kind;
  int32_t reserved;
  void* to;
  int64_t to_pitch;
  const void* from;
  int64_t from_pitch;
  int64_t row_bytes;
  int64_t rows;
} choral_copy;

typedef struct choral_memory_api {
  choral_header header;
  /* 64-byte aligned, zero-filled. No bytes are memory of its own that can be released, too. */
  choral_status* (*allocate)(choral_device*, uint64_t size_bytes, void** memory);
  void (*release)(choral_device*, void* memory); /* waits for work that uses it */
  choral_status* (*copy)(choral_device*, choral_stream*, const choral_copy*);
  choral_status* (*stream_create)(choral_device*, choral_stream** stream);
  void (*stream_destroy)(choral_device*, choral_stream*);
  choral_status* (*stream_synchronize)(choral_device*, choral_stream*); /* errors of queued work come out here */
  /* What can be allocated now, and what there is in all. The host decides by it how large the cache is, and whether weights fit.
   * Null: the host goes by the probe's memory_bytes, or by its own memory where it is told nothing or both are one. */
  choral_status* (*capacity)(choral_device*, uint64_t* free_bytes, uint64_t* total_bytes);
  /* Not 0: one more thread may call, beside everything else, `copy` to the device and stream_synchronize on a stream that no
   * other thread uses. The copy is complete once stream_synchronize has returned. Until then no operator is given it, though its
   * neighbours in the same allocation may be. 0: the host copies adapters between steps. */
  int32_t copies_beside;
  int32_t reserved;
} choral_memory_api;

/* ---- Weights. ------------------------------------------------------------------------------------------------------------- */

/* `rows` rows of a stored tensor in host memory: with an order, row i is stored row order[i], which may lie beyond `rows`. */
typedef struct choral_weight_part {
  const void* data;
  int64_t rows;
  int64_t row_bytes;
  const int32_t* order;
} choral_weight_part;

/* How x meets a weight. */
#define CHORAL_X_FULL 0        /* with at least 16 bits of significand */
#define CHORAL_X_INT8_BLOCKS 1 /* as int8 with a scale for each row and 32 columns: max|x| / 127, rint, ties to even */
#define CHORAL_X_INT8_ROWS 2   /* as int8 with a scale for each row, or a fixed one for all rows */
#define CHORAL_X_16 3          /* rounded once to 16 bits, nearest even: f16 for f16 weights, else bf16 */

/* What an integer of W stands for. */
#define CHORAL_LINEAR 0 /* itself */
#define CHORAL_E2M1 1   /* codes 0 to 15: 0 .5 1 1.5 2 3 4 6, and from code 8 on negated */

/* W [rows of all parts, cols]; parts are stacked. Stored elements are `stored_dtype`; the device computes as if they were rounded
 * to `dtype` first (equal for block types, i8 and e4m3). Read during the call only.
 * A weight with scales is i8, one integer a byte, or e4m3. Without them scale_count is 0 and of the rest `activations` alone
 * means something: for block types, how x meets them. Any weight but one of `dtype` f32 may ask for CHORAL_X_16; for f16 a row of
 * x may be multiplied by a power of two before it is rounded, and its sums divided by it. CHORAL_UNSUPPORTED to such a weight has
 * the host ask again, with CHORAL_X_FULL.
 *
 *   w[i, j] = scale[i, j / group_size] · (q[i, j] − zero[i, j / group_size])      q by its codebook
 *
 * Column j of W is multiplied by column k_order[j] of x, or j where there is none; read_row gives it at that place.
 *
 * The product of CHORAL_X_INT8_ROWS. Each row of x becomes int8 q with a scale s: without a fixed one s = max|x| / 127 and
 * q = rint(x / s), clamped to ±127; a row with s = 0 is all 0. With one q = rint(x / input_scale) + input_offset, clamped to −128
 * and 127, and s = 1; `scales` then are those of the product, input_scale times W's. Divisions are of floats, rint is to even,
 * and a row with a NaN or an infinity has q = 0 and s = NaN. The sum of each group is one of integers, Σ (q − input_offset) · w,
 * and exact; acc = fma((float)sum, scale, acc) from 0 over groups in order, and y = acc · s. With 8 bits and no zeros these are
 * the host's bits. e4m3 weights meet x as it is. */
typedef struct choral_weight {
  choral_header header;
  int32_t stored_dtype;
  int32_t dtype;
  int64_t cols;
  const choral_weight_part* parts;
  int64_t part_count;
  int32_t bits;            /* of i8, that q needs: 8, or 4 for −8 to 7 and for codes */
  int32_t codebook;        /* of i8 */
  int32_t activations;     /* CHORAL_X_… */
  int32_t has_fixed_input; /* not 0: input_scale and input_offset are set */
  float input_scale;
  int32_t input_offset;
  int64_t group_size;  /* columns of a scale; 0: all */
  const float* scales; /* [rows of W, groups], whatever the parts' orders; the last group may be shorter */
  int64_t scale_count;
  const int16_t* zeros; /* as many, or none: 0 */
  int64_t zero_count;
  const int32_t* k_order; /* [cols], or none */
  int64_t k_order_count;
} choral_weight;

typedef struct choral_packed_facts {
  choral_header header;
  int64_t size_bytes;              /* on the device */
  char format[CHORAL_NAME_SIZE];   /* "bf16, 16x16 tiles" */
  char kernel[CHORAL_REASON_SIZE]; /* what multiplies it, for people */
} choral_packed_facts;

typedef struct choral_weight_api {
  choral_header header;
  /* CHORAL_UNSUPPORTED leaves this matrix in host memory, multiplied by the CPU. */
  choral_status* (*prepack)(choral_device*, choral_stream*, const choral_weight*, choral_packed** packed, choral_packed_facts*);
  void (*release)(choral_device*, choral_packed*);
  /* Row `row` as floats in host memory [cols], exactly as matmul multiplies by it. Called by any
   * thread, several at once, beside the engine's and by the pool's own: it must not use parallel_for. */
  choral_status* (*read_row)(choral_device*, const choral_packed*, int64_t row, float* out);
} choral_weight_api;

/* ---- Operators. ----------------------------------------------------------------------------------------------------------- */

#include "choral/plugin_operators.h" /* what each is given, by its name */

typedef choral_status* (*choral_op_fn)(choral_device*, choral_stream*, const void* args);

/* An operator of this device by its public name; `version` is that of its meaning, as choral/plugin_operators.h has it. A row of
 * what it computes has the same bits whichever rows, and however many, are computed in the same call: no sum is split by their
 * number. Each operator is held to that, and to the host's reference, when the device starts, and refused by name when it
 * differs. */
typedef struct choral_op {
  choral_header header;
  const char* name;
  int32_t version;
  int32_t reserved;
  choral_op_fn run;
} choral_op;

#define CHORAL_NO 0
#define CHORAL_YES 1
#define CHORAL_SLOW 2 /* yes, but the host does it better */

typedef struct choral_op_query {
  choral_header header;
  const char* name;
  int32_t version;
  int32_t kv_dtype; /* of operators on the cache */
  int64_t rows;     /* 1 for decode, larger for prefill */
} choral_op_query;

typedef struct choral_support {
  choral_header header;
  int32_t verdict;
  int32_t reserved;
  char reason[CHORAL_REASON_SIZE]; /* of NO and SLOW */
} choral_support;

/* ---- Workers and patches. ------------------------------------------------------------------------------------------------- */

typedef struct choral_step {
  choral_header header;
  int64_t index;
  int64_t rows;
  int64_t sequences;
  int32_t has_prefill;
  int32_t has_adapters;
} choral_step;

/* A worker by name, chosen through choral_config.worker_cls. Its hooks stand around the host's own work and may be null. */
typedef struct choral_worker_class {
  choral_header header;
  const char* name;
  choral_status* (*on_start)(choral_device*);
  choral_status* (*begin_step)(choral_device*, choral_stream*, const choral_step*);
  choral_status* (*end_step)(choral_device*, choral_stream*, const choral_step*);
  void (*on_stop)(choral_device*);
} choral_worker_class;

/* A named change of one entry of a registry, listed by the host and undone when the worker stops. Registry "op": `key` is an
 * operator, neither fused nor the cache's, which is then served by provider `value`: "cpu" or "native", the host's kernel or its
 * plain loops, or this plug-in's name. "custom_op": `key` is a CustomOp, whose form becomes `value` ("native", "cpu", "oot").
 * "fuse": `key` is a fused operator, which the model is then built with or without: `value` is "on" or "off". */
typedef struct choral_patch {
  choral_header header;
  const char* name; /* "keep-rotary-on-host" */
  const char* registry;
  const char* key;
  const char* value;
  const char* reason;
} choral_patch;

/* What the device gives at most, measured with nothing else queued; 0: none of that. A multiply-add is two. */
typedef struct choral_peaks {
  choral_header header;
  double read_bytes_per_s; /* of its memory, much more of it than its caches hold */
  double copy_bytes_per_s; /* read and written, together */
  double f32_ops_per_s;
  double bf16_ops_per_s; /* of products of matrices, as the next */
  double int8_ops_per_s;
} choral_peaks;

/* ---- The plug-in. --------------------------------------------------------------------------------------------------------- */

typedef struct choral_plugin {
  choral_header header;
  const char* name;    /* what --device says: letters, digits, '_' and '-' */
  const char* version; /* of the plug-in */
  const char* description;
  choral_status* (*probe)(choral_probe*);
  choral_status* (*check_and_update_config)(choral_config*); /* may be null */
  choral_status* (*open_device)(const choral_device_config*, choral_device** device);
  void (*close_device)(choral_device*);
  const choral_memory_api* memory;
  const choral_weight_api* weights; /* null: weights stay with the CPU */
  const choral_op* ops;             /* always there */
  int64_t op_count;
  choral_status* (*supports_op)(choral_device*, const choral_op_query*, choral_support*); /* null: yes to all of ops */
  /* CustomOps ("rms_norm", "silu_and_mul", "gelu_and_mul", "rotary_embedding") that models are built with in this plug-in's form,
   * with the arguments of the operator of that meaning. A name that no layer declares fails the start. */
  const choral_op* custom_ops;
  int64_t custom_op_count;
  /* The fused operators. Names are known from the start, so that models can be built; the code comes at the first forward pass by
   * load_fused_ops, whose table then replaces fused_ops. When it fails, compositions are used and the reason is shown. */
  const char* const* fused_op_names;
  int64_t fused_op_count;
  choral_status* (*load_fused_ops)(choral_device*, const choral_op** ops, int64_t* op_count);
  const choral_worker_class* workers;
  int64_t worker_count;
  const choral_patch* patches;
  int64_t patch_count;
  choral_status* (*measure_peaks)(choral_device*, choral_stream*, choral_peaks*); /* null: it states none */
} choral_plugin;

/* The one exported symbol. `host` outlives the library. Null when this plug-in cannot work with such a host at all. */
typedef const choral_plugin* (*choral_plugin_query_fn)(const choral_host* host);
#define CHORAL_PLUGIN_QUERY "choral_plugin_query"
CHORAL_PLUGIN_EXPORT const choral_plugin* choral_plugin_query(const choral_host* host);

#ifdef __cplusplus
}
#endif

#endif
