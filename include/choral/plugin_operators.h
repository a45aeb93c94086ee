/* What operators are given: matrices, the cache, stacks, and the arguments of each operator by its name. A part of
 * choral/plugin.h: include that, which says how such structs grow. Plain C99. */
#ifndef CHORAL_PLUGIN_OPERATORS_H
#define CHORAL_PLUGIN_OPERATORS_H

#ifndef CHORAL_PLUGIN_H
#error "include choral/plugin.h"
#endif

/* On the device. [rows, cols], a row `stride` elements after the one before. Elements are `dtype`, today CHORAL_F32 alone; what a
 * plug-in does not know it refuses with CHORAL_UNSUPPORTED. */
typedef struct choral_matrix {
  void* data;
  int64_t rows;
  int64_t cols;
  int64_t stride;
  int32_t dtype;
  int32_t reserved;
} choral_matrix;

/* A weight that is no matrix: of a norm, a bias, sinks. On the device; null where there is none. The same holds of `dtype`. */
typedef struct choral_vector {
  const void* data;
  int64_t size;
  int32_t dtype;
  int32_t reserved;
} choral_vector;

/* One layer's share of the paged cache: blocks of 32 tokens. Elements are `dtype`, f32, f16 or bf16. The host sizes keys as
 * [blocks][kv_heads · head_dim · 32] and values as [blocks][kv_heads · round_up(v_head_dim, 16) · 32]; the order within a block
 * is the device's own business. A device has the cache when it serves both write_kv and paged_attention; else the host keeps it
 * and runs them, rope_write_kv included. `values` may be null: a token's value is the first v_head_dim elements of its key, and v
 * of write_kv is empty. The host gives none of int8. */
typedef struct choral_kv_cache {
  void* keys;
  void* values; /* null: values lie in the keys */
  int32_t dtype;
  int32_t block_tokens;
  int64_t blocks;
  int64_t kv_heads;
  int64_t head_dim;   /* of keys */
  int64_t v_head_dim; /* of values */
} choral_kv_cache;

/* Rows [query_begin, query_begin + query_count) are the newest tokens of a sequence that has context_tokens before them. Its
 * block table is block_ids[first_block …]. Of blocks that lie wholly before what a window shows of any row the number means
 * nothing: they are not read. */
typedef struct choral_sequence {
  int32_t query_begin;
  int32_t query_count;
  int32_t context_tokens;
  int32_t first_block;
} choral_sequence;

/* Arguments, by the operator's name. Every pointer in them is a device pointer except `weight`.
 * "matmul" 1: y = x·Wᵀ (+ bias) (+ y). "gather_rows" 1: out row i = row ids[i] of W. */
typedef struct choral_matmul_args {
  choral_header header;
  const choral_packed* weight;
  choral_matrix x;    /* [m, k] */
  choral_matrix y;    /* [m, n] */
  choral_vector bias; /* [n] or null */
  int32_t accumulate;
  int32_t reserved;
} choral_matmul_args;

typedef struct choral_gather_rows_args {
  choral_header header;
  const choral_packed* weight;
  const int32_t* ids; /* [out.rows] */
  choral_matrix out;
} choral_gather_rows_args;

/* "take_rows" 1: out row i = row rows[i] of x. */
typedef struct choral_take_rows_args {
  choral_header header;
  choral_matrix x;
  const int32_t* rows; /* [out.rows] */
  choral_matrix out;
} choral_take_rows_args;

/* "add" 1: y += x. "silu_and_mul" 1, "gelu_tanh_and_mul" 1: y = act(left half of x)·(right half of x). */
typedef struct choral_unary_args {
  choral_header header;
  choral_matrix x;
  choral_matrix y;
} choral_unary_args;

/* "swigluoai_and_mul" 1: x is gate, up, gate, …; g = min(gate, limit), y = (clamp(up, ±limit) + 1)·g·sigmoid(alpha·g). */
typedef struct choral_swigluoai_args {
  choral_header header;
  choral_matrix x; /* [m, 2·n] */
  choral_matrix y; /* [m, n] */
  float alpha;
  float limit;
} choral_swigluoai_args;

/* "scale" 1: y = factor·y. */
typedef struct choral_scale_args {
  choral_header header;
  choral_matrix y;
  float factor;
  int32_t reserved;
} choral_scale_args;

/* "add_bias" 1: every row of y += bias. */
typedef struct choral_bias_args {
  choral_header header;
  choral_matrix y;
  choral_vector bias; /* [y.cols] */
} choral_bias_args;

/* "grouped_matmul" 1, a fused operator: the matmul of each product, of which none reads what another writes. `products` is host
 * memory, read during the call; x.rows of a product may be any number from 1 on. */
typedef struct choral_grouped_matmul_args {
  choral_header header;
  const choral_matmul_args* products;
  int64_t product_count;
} choral_grouped_matmul_args;

/* "moe_combine" 1: y row t = Σ_s weights[t, s]·(row places[t · slots + s] of x) (+ y row t, where `add` is not 0), added up over
 * s in order; slots is weights.cols. */
typedef struct choral_moe_combine_args {
  choral_header header;
  choral_matrix x;       /* [any, cols] */
  const int32_t* places; /* [rows · slots], each a row of x */
  choral_matrix weights; /* [rows, slots] */
  choral_matrix y;       /* [rows, cols] */
  int32_t add;
  int32_t reserved;
} choral_moe_combine_args;

/* "rms_norm" 1: y = x·rsqrt(mean(x²) + eps)·weight, row by row; x and y may be the same.
 * "rms_norm_heads" 1: the same for each run of weight.size columns. "add_rms_norm" 1: residual += x first, then y of the
 * residual. "add_rms_norm_bias" 1: the same and y += bias. Only these two read `residual`, only the last reads `bias`. */
typedef struct choral_rms_norm_args {
  choral_header header;
  choral_matrix x;
  choral_matrix y;
  choral_matrix residual;
  choral_vector weight;
  float eps;
  int32_t reserved;
  choral_vector bias; /* [x.cols] */
} choral_rms_norm_args;

/* cos and sin of positions [0, max_positions): row p is cos [rotary_dim / 2], then sin [rotary_dim / 2]. Pairs are
 * (i, i + rotary_dim/2), interleaved: (2i, 2i + 1); a' = a·cos − b·sin, b' = b·cos + a·sin. Elements of a head from rotary_dim on
 * stay as they are. */
typedef struct choral_rotary_table {
  const float* cos_sin;
  int64_t head_dim;
  int64_t rotary_dim;
  int64_t max_positions;
  int32_t interleaved;
  int32_t reserved;
} choral_rotary_table;

/* "rotary_embedding" 1: q and k in place. "qk_norm_rope" 1: each head of q and k normed first (q_weight, k_weight [head_dim],
 * eps). "rope_write_kv" 1: the rotation, and k and v put into `cache` at `slots`. Fields that an operator does not use are 0. */
typedef struct choral_rotary_args {
  choral_header header;
  choral_rotary_table table;
  const int32_t* positions; /* [rows] */
  choral_matrix q;
  choral_matrix k;
  choral_vector q_weight;
  choral_vector k_weight;
  float eps;
  int32_t reserved;
  choral_matrix v;
  choral_kv_cache cache;
  const int64_t* slots; /* [rows] */
} choral_rotary_args;

/* "write_kv" 1: row i of k and v goes to slot slots[i] = block · 32 + place; a negative slot is skipped. */
typedef struct choral_write_kv_args {
  choral_header header;
  choral_kv_cache cache;
  choral_matrix k;
  choral_matrix v;
  const int64_t* slots;
} choral_write_kv_args;

/* "paged_attention" 1: causal attention of each sequence's rows over its blocks. kv_heads divides heads. */
typedef struct choral_attention_args {
  choral_header header;
  choral_kv_cache cache;
  choral_matrix q;   /* [rows, heads · head_dim] */
  choral_matrix out; /* [rows, heads · v_head_dim] */
  int64_t heads;
  float scale;
  float softcap;          /* 0: none; else score = softcap · tanh(score / softcap) */
  int64_t sliding_window; /* 0: none; else a query at p sees keys from p − window + 1 on */
  const choral_sequence* sequences;
  int64_t sequence_count;
  const int32_t* block_ids;
  int64_t block_id_count;
  choral_vector sinks; /* [heads] or null: a score that joins each head's softmax and has no value */
} choral_attention_args;

/* Adapters' matrices, one after another: element (slot, row, col) lies (slot · rows + row) · cols + col elements after `data`.
 * The host allocates the memory, writes slots between steps, and reads none of it. Elements are `dtype`: f32, f16 or bf16. */
typedef struct choral_lora_stack {
  const void* data;
  int64_t slots;
  int64_t rows;
  int64_t cols;
  int32_t dtype;
  int32_t reserved;
} choral_lora_stack;

/* The operators on stacks, for a device that computes adapters itself: it serves all seven, or the host computes them on copies
 * of their rows. Row i has slot slot_of[i], or in the sgmv_ ones slot_of[s] of the sequence s that it is in: rows [starts[s],
 * starts[s] + lengths[s]). Sequences follow each other from row 0 to the last; their lengths are at most max_length. Both ways
 * give a row the same bits. A row of slot -1 is neither read nor written. Stack elements are multiplied as floats. "bgmv_shrink"
 * 1, "sgmv_shrink" 1: y = scaling · x·Aᵀ, A [slots, rank, in]. "bgmv_expand" 1, "sgmv_expand" 1: y = x·Bᵀ (+ y, where `add` is
 * not 0), B [slots, out, rank]. "bgmv_expand_slice" 1, "sgmv_expand_slice" 1: the same for columns [slice_begin, slice_begin +
 * out) of y. "bgmv_scale" 1: y = y·F value by value, F [slots, 1, cols of y] in f32; x is not set. From row
 * (of A) or column (of B) ranks[slot] on a slot is zeros, which need not be read; the bits are those without `ranks`. */
typedef struct choral_lora_args {
  choral_header header;
  choral_matrix x;
  choral_lora_stack stack;
  choral_matrix y;
  const int32_t* slot_of; /* [rows], or [sequence_count] */
  const int32_t* starts;  /* [sequence_count]; the sgmv_ ones only, as the next three */
  const int32_t* lengths;
  int64_t sequence_count;
  int64_t max_length;
  int64_t slice_begin;
  float scaling;
  int32_t add;
  const int32_t* ranks; /* [stack.slots], each at most the stack's rank; or null: nothing is said. */
} choral_lora_args;

/* One projection of those that lora_shrink and lora_expand take together. */
typedef struct choral_lora_slice {
  choral_lora_stack stack; /* A [slots, rank, in] of a shrink, B [slots, out, rank] of an expand */
  const int32_t* ranks;    /* as in choral_lora_args */
  choral_matrix middle;    /* [rows, rank], which a shrink writes and an expand reads */
  int64_t y_begin;         /* of an expand: columns [y_begin, y_begin + out) of y are this projection's */
} choral_lora_slice;

#define CHORAL_LORA_SLICES 4

/* "lora_shrink" 1, "lora_expand" 1, fused operators: the shrinks of projections that share x (q, k and v; gate and up), or the
 * expands of those that share y. For each slice middle = scaling · x·Aᵀ, or y = middle·Bᵀ (+ y, where `add` is not 0), by the
 * rules of the operators on stacks. Rows are named as for bgmv_ where `starts` is null, else as for sgmv_; a row has the same
 * slot in all slices, whose stacks have one dtype. No slice writes what another reads or writes, and its bits do not depend on
 * the others. */
typedef struct choral_lora_slices_args {
  choral_header header;
  choral_matrix x;        /* [rows, in], of a shrink */
  choral_matrix y;        /* [rows, any], of an expand */
  const int32_t* slot_of; /* [rows], or [sequence_count] */
  const int32_t* starts;  /* [sequence_count], or null; with it the next three */
  const int32_t* lengths;
  int64_t sequence_count;
  int64_t max_length;
  float scaling;
  int32_t add;
  int64_t slice_count; /* 1 to CHORAL_LORA_SLICES */
  choral_lora_slice slices[CHORAL_LORA_SLICES];
} choral_lora_slices_args;

/* "soft_cap" 1: y = cap·tanh(y / cap), cap > 0. NaN stays NaN. */
typedef struct choral_soft_cap_args {
  choral_header header;
  choral_matrix y;
  float cap;
  int32_t reserved;
} choral_soft_cap_args;

/* What is done to the logit of a token, in the order of the fields. */
typedef struct choral_logit_edit {
  int32_t token;    /* within the row's vocabulary */
  float bias;       /* added; −inf: the token is removed, whatever its logit */
  float repetition; /* > 0, 1 for none: a logit above 0 is divided by it, any other multiplied */
  float frequency;  /* subtracted */
  float presence;   /* subtracted after it */
} choral_logit_edit;

/* How the token of a row is chosen. What begins at a place lies in the lists of choral_sample_args. */
typedef struct choral_sampling_row {
  double uniform;     /* in [0, 1): where the draw falls */
  float temperature;  /* below 1e-5: the most likely token, whatever top_p, min_p, top_k and uniform say */
  float top_p;        /* from 1 on: all */
  float min_p;        /* 0: all */
  int32_t top_k;      /* not positive, or at least the vocabulary: all */
  int32_t vocab;      /* leading logits of the row that are its own, at least 1; the others are not looked at */
  int32_t edit_begin; /* no two edits of a row are of one token */
  int32_t edit_count;
  int32_t mask_begin;    /* token t may be chosen if bit t % 32 of word t / 32 is set; a token beyond the words may not */
  int32_t mask_words;    /* 0: there is no mask */
  int32_t wants_logprob; /* not 0: of the chosen token, and of top_count others */
  int32_t top_begin;
  int32_t top_count;   /* at most 128 */
  int32_t named_begin; /* −1: the others are the most likely tokens; else the top_count tokens named there */
  int32_t reserved;
} choral_sampling_row;

#define CHORAL_TOKEN_CHOSEN 0
#define CHORAL_LOGITS_NAN 1      /* a logit is NaN, after edits and mask, as the next two */
#define CHORAL_LOGITS_INFINITE 2 /* a logit is +inf */
#define CHORAL_NO_TOKEN_LEFT 3   /* all are −inf */

typedef struct choral_sampled_row {
  int32_t token; /* −1: there is none, and the next field says why */
  int32_t outcome;
  float logprob;     /* of the token, where it was wanted */
  int32_t top_count; /* of the row's places that were filled: fewer most likely tokens when there are no more */
} choral_sampled_row;

typedef struct choral_token_logprob {
  int32_t token;
  float logprob;
} choral_token_logprob;

/* "sample" 1: a token of each row. Log-probabilities are those of the row as it comes, logit − log Σ e^logit; a named token that
 * the row does not have has −inf; most likely ones come first, ties by the lower id, and none is a NaN or −inf. Then edits are
 * made and tokens that the mask does not allow get −inf. Of the tokens that are left (logit above −inf), weight w(t) =
 * e^((logit − largest) / temperature):
 *   min_p  keeps those with w >= min_p, top_k those whose logit is at least the k-th largest, all equals of it;
 *   top_p  of these the smallest set of most likely ones, ties by the lower id, that has top_p of their weight; at least one;
 *   draw   the first token, ids ascending, at which the sum of kept weights exceeds uniform · their sum.
 * A greedy choice is the largest logit, ties by the lower id. A row's result depends on the row alone, to the bit; rounding of
 * e^x and of sums is the device's own. The logits may be changed. */
typedef struct choral_sample_args {
  choral_header header;
  choral_matrix logits;            /* [rows, cols] */
  const choral_sampling_row* rows; /* [rows] */
  const choral_logit_edit* edits;
  int64_t edit_count;
  const uint32_t* mask_words;
  int64_t mask_word_count;
  const int32_t* named;
  int64_t named_count;
  choral_sampled_row* sampled; /* [rows] */
  choral_token_logprob* top;
  int64_t top_count;
} choral_sample_args;

#endif
