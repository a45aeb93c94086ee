/* The engine for C and for every language that calls C: load a model, put requests in, take answers out, change adapters.
 *
 *   char* error = NULL;
 *   choral_engine* engine = NULL;
 *   choral_answer* answer = NULL;
 *   if (choral_engine_load("{\"model\": \"model.gguf\"}", &engine, &error) != CHORAL_OK) {
 *     puts(error);
 *     choral_free(error);
 *     return 1;
 *   }
 *   choral_submit(engine, "{\"prompt\": \"The capital of France is\", \"max_tokens\": 16}", &answer, NULL);
 *
 * Records with many fields are JSON objects in UTF-8: options under the names of choral::EngineOptions, requests and answers as
 * the lines of `choral generate` (docs/cli.md), adapters and the model as below. An unknown name is an error. A piece of an
 * answer, which is read for every token, is a struct.
 *
 * Stability. CHORAL_C_API_VERSION counts additions. Within one SOVERSION of the library nothing is removed or changes its
 * meaning; before 1.0 the SOVERSION changes with every minor version. Structs begin with `size`, which the caller sets to sizeof:
 * fields are only added at the end, and the library writes no more than the caller's size. JSON gains fields: take those that you
 * know. Codes keep their numbers.
 *
 * Errors. A function that can fail gives CHORAL_OK (0) or another code, and leaves its outputs NULL. `error` may be NULL; else it
 * gets the message (what is wrong, where, what to do), or NULL when all is well or memory is short. NULL where a pointer is
 * needed is CHORAL_INVALID_ARGUMENT. Nothing is thrown, nothing ends the process. Warnings go to standard error as the variable
 * CHORAL_LOG_LEVEL says; "off" leaves them out.
 *
 * Memory. The caller frees texts and numbers that come out through a pointer to a pointer, with choral_free(). Inputs are
 * copied. Handles are freed once, by their own functions, for which NULL is fine; a handle that was freed must not be used
 * again.
 *
 * Threads. An engine may be used by all threads at once, but freed only when no other call with it is running. An answer is read
 * by one thread at a time; choral_answer_cancel() may come from any. An answer may outlive its engine: what it was given by then
 * stays readable, and it ends with CHORAL_UNAVAILABLE unless it was complete. */
#ifndef CHORAL_CHORAL_H
#define CHORAL_CHORAL_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define CHORAL_C_API __attribute__((visibility("default")))
#else
#define CHORAL_C_API
#endif

#define CHORAL_C_API_VERSION 2

typedef struct choral_engine choral_engine;
typedef struct choral_answer choral_answer; /* to one request, from its submission on */

/* Codes. Those that choral/plugin.h has too are the same. */
#define CHORAL_OK 0
#define CHORAL_INVALID_ARGUMENT 1   /* a field, an option or an argument is wrong */
#define CHORAL_NOT_FOUND 2          /* a file, model, adapter or name does not exist */
#define CHORAL_ALREADY_EXISTS 3     /* a name is taken */
#define CHORAL_CORRUPT 4            /* a file or JSON breaks its own format */
#define CHORAL_UNSUPPORTED 5        /* well-formed, but this build cannot do it */
#define CHORAL_TOO_LARGE 6          /* over a stated limit */
#define CHORAL_RESOURCE_EXHAUSTED 7 /* queue, memory or slots are full now */
#define CHORAL_UNAVAILABLE 8        /* the engine ends, or a file changes while it is read */
#define CHORAL_CANCELLED 9
#define CHORAL_DEADLINE_EXCEEDED 10 /* a time limit passed */
#define CHORAL_PERMISSION_DENIED 11
#define CHORAL_INTERNAL 12 /* a bug or a failing machine */

CHORAL_C_API const char* choral_code_name(int32_t code); /* "not_found"; "unknown" of other numbers. Static */
CHORAL_C_API const char* choral_version(void);           /* "0.1.0". Static */
CHORAL_C_API int32_t choral_c_api_version(void);         /* CHORAL_C_API_VERSION of the library that is loaded */
CHORAL_C_API void choral_free(void* memory);

/* ---- The engine. ----------------------------------------------------------------------------------------------------------- */

/* {"model": "a folder, a GGUF file or org/name", "threads": 4, "adapters": [{"name": "sql", "path": "…"}], …}. Returns when the
 * model is ready. */
CHORAL_C_API int32_t choral_engine_load(const char* options_json, choral_engine** engine, char** error);
/* The same, telling how far it is: `phase` is "open", "load", "memory", "pack", "adapters" or "ready", `detail` says of what,
 * `fraction` is 0 to 1 of the phase. `on_progress` is called on this thread; its texts are valid during the call. */
typedef void (*choral_load_progress)(void* context, const char* phase, const char* detail, double fraction);
CHORAL_C_API int32_t choral_engine_load_with_progress(const char* options_json, choral_load_progress on_progress, void* context,
                                                      choral_engine** engine, char** error);
/* Ends what is in flight, after the step in progress. */
CHORAL_C_API void choral_engine_free(choral_engine* engine);
/* {"name", "architecture", "parameters", "max_model_len", "vocab_size", "notes": [every choice that was made], …} */
CHORAL_C_API int32_t choral_engine_info(choral_engine* engine, char** info_json, char** error);
/* {"running", "waiting", "steps", "generated_tokens", "kv_blocks_free", "adapter_bytes", …}: counts since the load, and what is
 * now. Waits for nothing. From version 2 on, as all below that say so. */
CHORAL_C_API int32_t choral_engine_stats(choral_engine* engine, char** stats_json, char** error);
/* CHORAL_OK when the engine's loop turns; CHORAL_DEADLINE_EXCEEDED when it does not within limit_ms milliseconds, because a step
 * is long or a device hangs. Version 2. */
CHORAL_C_API int32_t choral_engine_health(choral_engine* engine, int64_t limit_ms, char** error);

/* ---- Texts and tokens. Version 2. ------------------------------------------------------------------------------------------ */

/* The ids of text_bytes bytes of UTF-8; with add_special_tokens not 0 also those that the model's prompts begin or end with. */
CHORAL_C_API int32_t choral_tokenize(choral_engine* engine, const char* text, size_t text_bytes, int32_t add_special_tokens,
                                     int32_t** token_ids, size_t* token_count, char** error);
/* The text of ids, with a 0 behind it that text_bytes does not count. Ids that the model does not have give nothing. */
CHORAL_C_API int32_t choral_detokenize(choral_engine* engine, const int32_t* token_ids, size_t token_count,
                                       int32_t skip_special_tokens, char** text, size_t* text_bytes, char** error);
/* The prompt that a request with "messages" would be given. */
CHORAL_C_API int32_t choral_apply_chat_template(choral_engine* engine, const char* request_json, char** prompt, char** error);

/* ---- Requests. ------------------------------------------------------------------------------------------------------------- */

/* {"prompt": "…"} or {"messages": […]}, with "lora": "an adapter's name" and what samples, over the model's own sampling. With
 * "embedding": true the prompt's embedding ("dimensions": its first numbers), or with "classes": true what the model's head of
 * classes gives, comes in the place of an answer: it has no pieces, choral_answer_wait() gives it. All requests in flight share
 * the engine's steps. A request that is refused makes no answer. */
CHORAL_C_API int32_t choral_submit(choral_engine* engine, const char* request_json, choral_answer** answer, char** error);

/* What choral_answer_next() found. */
#define CHORAL_PENDING 0 /* nothing new within the time */
#define CHORAL_PIECE 1   /* a piece, which is given */
#define CHORAL_END 2     /* nothing more: the answer is complete */

/* Why a completion ended. */
#define CHORAL_FINISH_NONE 0 /* it goes on */
#define CHORAL_FINISH_STOP 1
#define CHORAL_FINISH_LENGTH 2
#define CHORAL_FINISH_CANCELLED 3
#define CHORAL_FINISH_ERROR 4

/* A token's log-probability. This struct and the next one never change. */
typedef struct choral_logprob {
  int32_t token_id;
  float logprob;
} choral_logprob;
/* Of one position: the token that stands there, and the most likely ones, best first, as many as the request asked for. */
typedef struct choral_position {
  choral_logprob chosen;
  const choral_logprob* top;
  size_t top_count;
} choral_position;

/* What is new of one completion. Pointers are valid until the next call with the answer, and NULL where there is nothing. */
typedef struct choral_piece {
  uint32_t size;    /* sizeof(choral_piece), set by the caller */
  int32_t state;    /* CHORAL_PENDING, CHORAL_PIECE or CHORAL_END; the fields below are of a piece */
  int32_t index;    /* of the completion, when the request asks for several */
  int32_t finish;   /* CHORAL_FINISH_…; not CHORAL_FINISH_NONE in the last piece of this completion */
  const char* text; /* UTF-8 that ends with a 0, which text_bytes does not count; may hold other ones */
  size_t text_bytes;
  const int32_t* token_ids;
  size_t token_count;
  const choral_position* logprobs; /* of the tokens above, when the request asks for "logprobs". Version 2, as the rest */
  size_t logprob_count;
  const choral_position* prompt_logprobs; /* of the whole prompt, in the first piece, when it asks for "prompt_logprobs" */
  size_t prompt_logprob_count;
} choral_piece;

/* Waits for at most wait_ms milliseconds; 0 only looks, less than 0 waits without limit. */
CHORAL_C_API int32_t choral_answer_next(choral_answer* answer, int64_t wait_ms, choral_piece* piece, char** error);
/* From now on `callback` is called once when there is something to read, a piece or the end, after choral_answer_next() found
 * CHORAL_PENDING. Then read until it finds CHORAL_PENDING again, or CHORAL_END. If there is something to read now, it is called
 * at once, on this thread. Later calls come from the engine's thread, whose steps wait for them, or from the one that frees the
 * engine: hand the news to a thread of your own. The callback may call choral_answer_next() with wait_ms 0 and
 * choral_answer_cancel(); it must not wait or free. A call without news may happen. NULL: no more calls. When this or
 * choral_answer_free() returns, no call to an earlier callback is running or will come; so hold no lock meanwhile that the
 * callback takes. */
typedef void (*choral_ready)(void* context);
CHORAL_C_API int32_t choral_answer_on_ready(choral_answer* answer, choral_ready callback, void* context, char** error);
/* The answer ends soon, in any phase. What there is of it stays readable. */
CHORAL_C_API int32_t choral_answer_cancel(choral_answer* answer, char** error);
/* Waits for the end and gives the whole answer, pieces that were read included: {"id", "prompt_token_ids", "token_ids", "text",
 * "finish_reason", …}, or {…, "embedding": [numbers]} or {…, "classes": [numbers]}. The code is the answer's own. An answer that
 * failed gives both: what there is of it, and the error. Call it once.
 */
CHORAL_C_API int32_t choral_answer_wait(choral_answer* answer, char** answer_json, char** error);
/* Cancels it if it is not complete. */
CHORAL_C_API void choral_answer_free(choral_answer* answer);

/* ---- Adapters. They come and go while the engine runs. --------------------------------------------------------------------- */

/* {"name": "sql", "path": "a folder in PEFT's form, or a GGUF adapter", "pinned": false, "replace": false}. Returns when it is
 * loaded and checked. With "expected_generation" it replaces what the name is at that generation, and nothing else. */
CHORAL_C_API int32_t choral_adapter_load(choral_engine* engine, const char* adapter_json, char** error);
/* A file in memory. This struct never changes. */
typedef struct choral_file {
  const char* name; /* as it would stand in the adapter's folder: "adapter_config.json" */
  const void* bytes;
  size_t size;
} choral_file;
/* The same without a path, of the files that the folder would hold: adapter_config.json and adapter_model.safetensors, .bin or
 * .pt, or one .gguf; tokenizer_config.json or the like when it brings tokens of its own. Others are not looked at. All are
 * copied, and kept until the name is gone. */
CHORAL_C_API int32_t choral_adapter_load_files(choral_engine* engine, const char* adapter_json, const choral_file* files,
                                               size_t file_count, char** error);
/* The name is gone at once; requests that run with it end with it. */
CHORAL_C_API int32_t choral_adapter_unload(choral_engine* engine, const char* name, char** error);
/* pinned not 0: the adapter is loaded if need be and stays in memory; 0: it may be evicted again. Done when this returns.
 * Version 2. */
CHORAL_C_API int32_t choral_adapter_pin(choral_engine* engine, const char* name, int32_t pinned, char** error);
/* [{"name", "path", "state", "digest", "kind", "rank", "bytes", "error", …}], sorted by name. */
CHORAL_C_API int32_t choral_adapter_list(choral_engine* engine, char** adapters_json, char** error);

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif
