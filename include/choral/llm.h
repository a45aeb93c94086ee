// The engine as a library. Load a model, put requests in, take answers out; errors are values.
//
//   auto llm = choral::LLM::load({.model = "SmolLM2-135M-Instruct.gguf"});
//   if (!llm.ok()) { std::cerr << llm.status().to_string(); return 1; }
//   choral::Request request{.prompt = "The capital of France is"};
//   std::cout << (*llm)->generate({request}).front().completions.front().text;
//
// One LLM runs one engine thread and one compute pool; all requests in flight share every step's batch (continuous batching).
// Thread-safe: any thread may submit, read, cancel. Link with Choral::choral.
#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "choral/kv_events.h"
#include "choral/status.h"
#include "choral/types.h"

namespace choral {

namespace engine {
class RankLink;
}  // namespace engine
namespace platform {
class LayerOverrides;
class Platform;
}  // namespace platform

struct LoadProgress {
  std::string_view phase;  // "open", "load", "memory" (what it will take, in words), "pack", "packed" (how it went, in words), …
  std::string_view detail;
  double fraction = 0;  // 0 … 1 of the phase
};

// An adapter in memory: the contents of the files that its folder would have, by their names. adapter_config.json and
// adapter_model.safetensors, .bin or .pt, or one .gguf; tokenizer_config.json or the like when it brings tokens of its own. Other
// files are ignored.
using AdapterBytes = std::map<std::string, std::string, std::less<>>;

// An adapter by the name that requests use, and where it comes from: a path (a directory in PEFT's form, or a GGUF adapter) or
// bytes, not both.
struct AdapterSpec {
  std::string name = {};
  std::string path = {};
  bool pinned = false;  // stays in memory, packed
  // Kept until the name is unloaded or replaced and its last request ended, because an evicted adapter is read again. Equal
  // bytes, or bytes equal to files, are one adapter.
  std::shared_ptr<const AdapterBytes> bytes = {};
  // The name's generation and digest in an engine before this one, which counts on from there. 0: none. Where
  // EngineOptions::adapter_generations is given, that decides.
  int last_generation = 0;
  std::string last_digest = {};
};

// Numbers the contents that each name has had (AdapterInfo::generation), where the numbers must outlast the engine.
class AdapterGenerations {
 public:
  virtual ~AdapterGenerations() = default;
  // If the name's last content was this one, its number; else a number that the name never had. The number is kept for good when
  // this returns; an adapter whose number cannot be kept is not loaded. Called by threads that may wait, in the order of a name's
  // contents.
  virtual Result<int> number_of(const std::string& name, const std::string& digest) = 0;
};

// Where adapters lie that nobody loaded by name, when that is not a folder of adapter_root by the name itself: a catalogue's
// word. Whoever keeps it may change it at any time; a name then stands for what lies at its new place, as if its files had
// changed. Thread-safe; now() is asked for each request that names an adapter, and waits for nothing.
class CHORAL_API AdapterPlaces {
 public:
  using Folders = std::map<std::string, std::string, std::less<>>;  // by name, without links on their way
  // Null: as adapter_root says. Else these names are all there are.
  std::shared_ptr<const Folders> now() const;
  void set(std::shared_ptr<const Folders> folders);

 private:
  mutable std::mutex mutex_;
  std::shared_ptr<const Folders> folders_;
};

struct EngineOptions {
  std::string model = {};      // a directory, a GGUF file, or org/name in the local Hugging Face cache
  std::string tokenizer = {};  // another directory for the tokenizer; empty = the model's
  std::string dtype = "auto";  // weights: auto (as stored) | float32 | bfloat16 | float16
  // auto: the checkpoint as it is. For a float one, while it is loaded: w8a8_dynamic | w8a16 | w4a16 | w4a8_dynamic | fp8
  std::string quantization = "auto";
  // The x that weights are multiplied with: auto (as the checkpoint says, else in full) | 16bit (rounded, on devices) | int8 (for
  // integer weights: faster)
  std::string activations = "auto";
  std::string kv_cache_dtype = "auto";  // auto (float16) | float32 (exact) | bfloat16 | float16 | int8
  std::string device = "auto";          // auto: the best usable plug-in, else the CPU | cpu | a plug-in's name
  // Errors: a fallback to another device or provider, and an adapter of another base.
  bool strict = false;
  bool require_device = false;     // with auto: no plug-in that works is an error, instead of the CPU
  std::string custom_ops = "all";  // CustomOps in the device's form: all | none, then +name and -name, with commas
  std::string fuse = "all";        // fused operators: all | none, then +name and -name
  std::string worker_cls = "auto";
  // Classes that stand in for layers' own (platform/layer_overrides.h), for programs that are built with the engine's sources.
  std::shared_ptr<const platform::LayerOverrides> layer_overrides = {};
  // Instead of the one that `device` would find (platform/platform.h), for the same programs.
  std::shared_ptr<const platform::Platform> platform = {};
  // Packed weights on disk, which a later load maps instead of packing: auto (those of 1 GiB and more, beside the hub's cache) |
  // off | a folder (those of every model)
  std::string packed_cache = "auto";
  int threads = 0;            // 0 = one per physical core
  std::string numa = "auto";  // threads stay at caches and so at nodes: auto, where each core has one; off; distribute, always
  // Ranks that divide the model, each with some rows of every matrix and threads of its own; answers are the same bits.
  int tensor_parallel_size = 1;
  // Of a program that is one of several processes, each with a rank of its own, for the same programs as `platform`.
  std::shared_ptr<engine::RankLink> rank_link = {};
  double rank_timeout_s = 60;  // a process that says nothing for so long within a step is lost, and the model with it
  int max_model_len = 0;       // 0 = the model's
  int max_num_seqs = 64;
  int max_num_batched_tokens = 1024;  // a step's budget: prompt chunks and decode rows together
  int64_t kv_cache_bytes = 0;         // 0 = by the machine's free memory; a summary says how it was found
  int max_waiting = 4096;             // requests beyond are refused with resource_exhausted
  int64_t max_waiting_tokens = 0;     // … the tokens of their prompts and predictions, once a request waits; 0 = none
  double request_timeout_s = 0;       // of requests that bring no timeout_s; 0 = none
  double queue_timeout_s = 0;         // of requests that bring no queue_timeout_s; 0 = none
  bool enable_prefix_caching = true;
  int kv_event_batches = 0;  // steps whose events of the prefix cache wait for LLM::next_kv_events(); 0: none are kept
  bool enable_chunked_prefill = true;
  // ngram: tokens are guessed from where the request's text went on before, and computed beside those that are known, where that
  // gives more tokens a second; answers are the same bits | traffic: from ended answers too, of requests with the same adapters
  // and cache_salt | draft=MODEL: by a draft model too, draft_model | several of these with commas, the model last | off
  std::string speculative = "ngram";
  int64_t traffic_memory_bytes = int64_t{64} << 20;  // for what ended answers said, where that is kept
  int most_guessed = 12;                             // tokens of an answer in a step, 1 to SpeculationStats::kMostGuessed
  // A small model of the same tokenizer, named as `model` is, that guesses where this gives more tokens a second; empty: none.
  std::string draft_model = {};
  std::string draft_quantization = "auto";  // of the draft model, as `quantization`
  // Of the draft model: each guesses for the requests of the adapter that has its name. Loaded before load() returns.
  std::vector<AdapterSpec> draft_adapters = {};
  std::string scheduling_policy = "fcfs";  // fcfs | priority
  uint64_t seed = 0;                       // for requests that bring none
  std::string chat_template = {};          // Jinja text that replaces the model's

  std::vector<AdapterSpec> adapters = {};  // loaded and checked before load() returns
  std::string adapter_root = {};           // a directory: NAME/adapter_config.json in it is adapter NAME, loaded at first use
  std::string lora_dtype = "auto";         // adapters in memory: auto (as stored) | float32 | bfloat16 | float16 | int8
  int max_lora_rank = 512;                 // adapters of a higher rank are refused
  int lora_extra_vocab_size = 256;         // tokens that an adapter may bring; adapters with more are refused
  bool lora_bias = true;                   // adapters may bring biases (lora_bias, bias="all"); else those are refused
  int max_loras = 0;                       // most different adapters in one step, those of mixes too; 0 = no limit
  int max_cpu_loras = 0;                   // most adapters in memory, at least max_loras; 0 = as many as have room
  bool fully_sharded_loras = false;        // ranks multiply by some rows of A each, and gather; else each by all of A
  int64_t adapter_memory_bytes = 0;        // budget for adapters in memory; 0 = a quarter of what is free
  std::shared_ptr<AdapterGenerations> adapter_generations = {};  // null: each name counts from 1 in each engine
  std::shared_ptr<const AdapterPlaces> adapter_places = {};      // null: names lie where adapter_root says
  int generations_alive = 1;  // of a name: its last ones can be asked for as NAME@GENERATION, beside the present one
  std::function<void(const LoadProgress&)> on_progress = {};
  // The model cannot compute any more: a process that has a rank of it is lost. Called once; every request fails from then on.
  std::function<void(const Status&)> on_lost = {};
};

enum class AdapterState { kOnDisk, kLoading, kResident, kFailed };
CHORAL_API std::string_view adapter_state_name(AdapterState state);  // "resident"

// An earlier content of a name, which requests name as NAME@GENERATION (EngineOptions::generations_alive).
struct AdapterGeneration {
  int generation = 0;
  std::string digest = {};
  std::string path = {};  // empty: it was given as bytes
  AdapterState state = AdapterState::kOnDisk;
  int in_use = 0;
};

struct AdapterInfo {
  std::string name;
  std::string path;        // empty: it was given as bytes
  int id = 0;              // unique in this engine, from 1
  int generation = 0;      // of this name's contents, counted by AdapterGenerations, else from 1; 0 until first loaded
  std::string digest;      // SHA-256 of the content in hex; empty until first loaded
  std::string kind;        // "LoRA", "rsLoRA", "DoRA", …; empty until first loaded
  int rank = 0;            // the largest of its modules
  int own_tokens = 0;      // that it brings: their ids follow the base's
  int64_t size_bytes = 0;  // packed, in memory
  AdapterState state = AdapterState::kOnDisk;
  bool pinned = false;
  bool is_found = false;  // in adapter_root, or where AdapterPlaces says: nobody loaded it by name
  int in_use = 0;         // running requests that hold it
  int64_t loads = 0;      // times it came from disk
  int64_t requests = 0;
  double last_use_unix_s = 0;                   // when a request named it last, or the last one that held it ended; 0: none did
  int64_t errors = 0;                           // reads of its name's files that failed
  std::string error;                            // why it failed, or why its changed files are not what is served
  std::vector<std::string> notes;               // what to know about it: that it was made for another base
  std::vector<AdapterGeneration> earlier = {};  // that can still be asked for, oldest first
};

// What an adapter does to one module.
struct AdapterLayer {
  std::string module;  // "model.layers.0.self_attn.q_proj"
  // "LoRA" or "DoRA", a pair of low rank; "weight" or "bias", that it has instead of the base's; "tokens", rows of its own
  std::string kind;
  int rank = 0;  // of a pair, as what follows
  float scaling = 0;
  std::optional<double> norm = {};  // ‖scaling·B·A‖, Frobenius' norm of what is added to the weight
};

// Name and path of an adapter: the parts of an AdapterInfo that do not change while its name stands for the same content.
struct AdapterName {
  std::string name;
  std::string path;  // empty: it was given as bytes
};
using AdapterNameList = std::vector<std::shared_ptr<const AdapterName>>;
using AdapterNames = std::shared_ptr<const AdapterNameList>;

// Layers of one name, apart from their number, that are stored and multiplied alike.
struct LayerForms {
  std::string layers;  // "model.layers.*.mlp.down_proj"
  int count = 0;
  std::string scheme;  // "W8A8_DYNAMIC"
  std::string kernel;  // "int8 x dynamic int8, avx512 vnni"
  std::string why;     // "--quantization w8a8_dynamic"
};

// What was loaded and how it runs; stable after load().
struct ModelInfo {
  std::string name;
  std::string architecture;
  std::string path;
  bool is_gguf = false;
  // SHA-256 in hex over the model's configuration and over each weight's name, type, shape and bytes from all over it, which are
  // all of a small one's: what is loaded, whatever it is called and wherever it lies.
  std::string digest;
  int64_t parameters = 0;
  int64_t weight_bytes = 0;  // as packed in memory
  int64_t kv_cache_bytes = 0;
  int64_t kv_cache_tokens = 0;  // of sequences that no window hides; those that one does take less
  int kv_block_tokens = 0;
  int max_model_len = 0;
  int vocab_size = 0;
  std::optional<int32_t> bos_token_id;  // which begins a text, where the tokenizer says so
  std::vector<int32_t> eos_token_ids;   // each of them ends an answer
  int ranks = 1;                        // that divide it (EngineOptions::tensor_parallel_size)
  int threads = 0;
  std::string cpu_level;
  std::string kv_cache_dtype;
  std::vector<std::string> class_labels;  // of a model that tells classes of texts, which gives no text; empty: of another
  bool gives_text = true;                 // false: only embeddings, or classes
  bool has_chat_template = false;
  std::string chat_template;         // the text of the one that requests without tools get; empty: none can be used
  std::string tool_template;         // the text of the chat template that requests with tools get; empty: none can be used
  std::string bos_token, eos_token;  // as they are spelled; empty: there is none
  FillTokens fill_tokens = {};
  int most_guessed = 0;            // tokens of an answer in a step; 0: none are guessed
  std::vector<std::string> notes;  // every choice and fallback that was made, with its reason
  std::vector<LayerForms> layers;  // how every matrix is stored and multiplied
};

// A histogram. counts[i] is the number of values of at most kBounds[i] and more than kBounds[i - 1]; the last counts those beyond
// any bound.
template <class Bounds>
struct Counted : Bounds {
  using Bounds::kBounds;
  using Sum = typename Bounds::Sum;
  std::array<int64_t, kBounds.size() + 1> counts = {};
  Sum sum = 0;  // of the values

  void add(Sum value) {
    ++counts[static_cast<size_t>(std::lower_bound(kBounds.begin(), kBounds.end(), value) - kBounds.begin())];
    sum += value;
  }
};

// Steps by their tokens, as vLLM counts them: computed prompt tokens and given ones.
struct StepTokenBounds {
  using Sum = int64_t;
  static constexpr std::array<Sum, 13> kBounds{1, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384};
};
using StepTokens = Counted<StepTokenBounds>;

// Adapters by the seconds that reading and packing one took.
struct AdapterLoadBounds {
  using Sum = double;
  static constexpr std::array<Sum, 13> kBounds{0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60};
};
using AdapterLoadSeconds = Counted<AdapterLoadBounds>;

// Tokens that were guessed before they were drawn (EngineOptions::speculative). They change no answer, only its time.
struct SpeculationStats {
  static constexpr int kMostGuessed = 12;           // of one answer in a step
  int64_t drafts = 0;                               // steps of answers with guesses
  int64_t guessed = 0, right = 0;                   // tokens
  std::array<int64_t, kMostGuessed> right_at = {};  // first, second, … guesses that were right
  int64_t draft_guessed = 0, draft_right = 0;       // of them, tokens that the draft model guessed
  int64_t draft_steps = 0;                          // its steps, those that read prompts included
  double draft_seconds = 0;                         // that they took
  bool draft_failed = false;                        // it failed, and guesses no more
  int64_t traffic_bytes = 0;                        // in which what ended answers said is kept
};

struct EngineStats {
  int running = 0;
  int waiting = 0;
  int64_t waiting_tokens = 0;  // what they have to compute first
  int64_t steps = 0;
  int64_t prompt_tokens = 0;  // computed; each once, however often its request was preempted
  int64_t generated_tokens = 0;
  int64_t preemptions = 0;
  int64_t corrupted = 0;  // answers that ended because their logits gave no token: NaN
  StepTokens step_tokens = {};
  SpeculationStats speculation = {};
  int64_t prefix_query_tokens = 0;
  int64_t prefix_hit_tokens = 0;
  int64_t kv_blocks_total = 0;
  int64_t kv_blocks_free = 0;
  int64_t adapter_bytes = 0;  // resident, and reserved for what is being loaded
  int64_t adapter_budget_bytes = 0;
  int64_t adapter_loads = 0;
  AdapterLoadSeconds adapter_load_seconds = {};  // of those that succeeded
  int64_t adapter_evictions = 0;
  int64_t host_copies = 0;        // from a device's memory to the host's: tokens or logits of each step, and whatever falls back
  int64_t host_copied_bytes = 0;  // by them
  bool is_paused = false;         // LLM::pause()
};

// What becomes of answers in flight when the engine pauses.
enum class PauseMode : uint8_t {
  kKeep,   // they stand still between two steps, and go on at resume() as if nothing had been
  kWait,   // they go on to their ends, and what comes meanwhile waits
  kAbort,  // they end, as cancelled
};

// A sign of life of the engine's loop. It can be read at once, however long a step takes.
struct EngineHeartbeat {
  double turn_age_s = 0;    // since the loop ended a turn
  double silent_s = 0;      // since it began or ended anything, a step for example; 0 where it waits for work
  double limit_s = 0;       // the longest it may be silent: in a step ten times what steps of its size took, and half a minute
  int64_t step_tokens = 0;  // of the step that it is computing since silent_s; 0: none

  bool is_alive() const { return silent_s <= limit_s; }
};

// An answer that is in the batch.
struct RunningAnswer {
  std::vector<AdapterUse> adapters = {};
  int prompt_tokens = 0;
  int read_tokens = 0;  // of the prompt, so far; those found in the prefix cache too
  int made_tokens = 0;  // of the answer, so far
  GuessCounts guesses = {};
};

// What the engine works on, for gateways that route by adapter.
struct EngineActivity {
  std::vector<RunningAnswer> running = {};         // most urgent first
  std::vector<std::string> running_adapters = {};  // names of those that running requests use, sorted, each once
  std::vector<std::string> waiting_adapters = {};  // of those that waiting requests want
  int waiting = 0;                                 // completions
  int deferred = 0;  // of them, those that wait for an adapter or for a prefix that another computes, not for room
};

// A request in flight. Dropping the handle cancels the request, as cancel() does: its computation ends with the step in progress,
// in every phase (queued, waiting for its adapter, in its prompt, answering, preempted).
//
// Read it in one of three ways: wait for each piece (next, or next_for with a limit), ask for pieces when on_ready() calls back
// (try_next), or wait for the whole (wait). One thread at a time reads; cancel() may come from any.
// With best_of or beams the pieces come at the end, one a completion. An embedding has none: after kEnd, wait() gives it.
//
// A stream may outlive its LLM. When the LLM ends, so does the answer, with unavailable unless it was complete. What there is of
// it stays readable, and cancel() does nothing.
class CHORAL_API ResponseStream {
 public:
  virtual ~ResponseStream() = default;
  virtual const std::string& id() const = 0;
  // Waits for the next piece; false when the answer is complete (status() then says whether it failed).
  virtual bool next(StreamEvent& event) = 0;
  // The next piece if there is one; `event` is written with kEvent only.
  virtual StreamState try_next(StreamEvent& event) = 0;
  // The same, waiting for at most `limit`.
  virtual StreamState next_for(StreamEvent& event, std::chrono::milliseconds limit) = 0;
  // From now on `callback` is called once when there is something to read, a piece or the end, after try_next() or next_for()
  // gave kPending. Then read until one of them gives kPending again, or kEnd. If there is something to read now, it is called at
  // once, on this thread. Later calls come from the engine's thread, whose steps wait for them, or from the one that ends the
  // LLM: hand the news to a thread of your own. The callback must not throw, wait or destroy the stream; try_next() and cancel()
  // are allowed. A call without news may happen. Empty: no more calls. When this or the destructor returns, no call to an earlier
  // callback is running or will come; so hold no lock meanwhile that the callback takes.
  virtual void on_ready(std::function<void()> callback) = 0;
  // Complete from the first piece on.
  virtual AnswerFacts facts() const = 0;
  // What the answer goes on with, from the beginning on; nothing once wait() gave it.
  virtual std::vector<int32_t> prompt_token_ids() const = 0;
  // Of each answer that goes on behind given tokens these and their text, with its index; no event has them. Nothing once wait()
  // gave it.
  virtual std::vector<StreamEvent> given() const = 0;
  virtual void cancel() = 0;
  virtual const Status& status() const = 0;
  // Waits for the end and gives everything, pieces already taken by next() included. Call it once; it leaves nothing to read.
  virtual RequestOutput wait() = 0;
};

// The texts and tokens of the base, or of adapters, of which one may bring tokens of its own. May outlive its LLM.
class CHORAL_API Vocabulary {
 public:
  virtual ~Vocabulary() = default;
  // too_large: there are more than `most_tokens`; told as soon as that is sure, without the work of the rest.
  // Without `parse_special` a text that spells a special token is text like any other.
  virtual Result<std::vector<int32_t>> tokenize(std::string_view text, bool add_special_tokens, size_t most_tokens = SIZE_MAX,
                                                bool parse_special = true) const = 0;
  virtual std::string detokenize(const std::vector<int32_t>& ids, bool skip_special_tokens = false) const = 0;
  virtual std::string token_text(int32_t id) const = 0;   // as the tokenizer's file spells it: "Ġthe"
  virtual std::string token_bytes(int32_t id) const = 0;  // what it stands for in a text: " the"; may cut a UTF-8 character
  virtual int64_t size() const = 0;                       // ids are below
};

class CHORAL_API LLM {
 public:
  static Result<std::unique_ptr<LLM>> load(EngineOptions options);
  // Ends what is in flight (ResponseStream says how), after the step in progress.
  virtual ~LLM() = default;

  // Puts a request into the running batch. Refusals (a prompt too long, a bad parameter, a full queue) come back at once.
  virtual Result<std::unique_ptr<ResponseStream>> submit(Request request) = 0;
  // The same request for each of the prompts; it has no prompt itself. All of them are taken before the next step begins, or
  // none. What they share is read and kept once. Streams are in the prompts' order; their ids end with -0, -1, … where there are
  // several.
  virtual Result<std::vector<std::unique_ptr<ResponseStream>>> submit_each(Request request, std::vector<Prompt> prompts) = 0;
  // All requests at once; answers in their order, each with its own status.
  virtual std::vector<RequestOutput> generate(std::vector<Request> requests) = 0;

  virtual Result<std::vector<int32_t>> tokenize(std::string_view text, bool add_special_tokens = true) const = 0;
  virtual std::string detokenize(const std::vector<int32_t>& ids, bool skip_special_tokens = false) const = 0;
  virtual std::string token_text(int32_t id) const = 0;   // as the tokenizer's file spells it: "Ġthe"
  virtual std::string token_bytes(int32_t id) const = 0;  // what it stands for in a text: " the"; may cut a UTF-8 character
  // The vocabulary of requests for these adapters. Errors are those of such a request, but no request is counted.
  virtual Result<std::shared_ptr<const Vocabulary>> vocabulary(const std::vector<AdapterUse>& adapters) const = 0;
  // The prompt text that a chat request would be given.
  virtual Result<std::string> apply_chat_template(const Request& request) const = 0;
  // Fine when every kind of StructuredOutput is served; else which are not, why, and what to install.
  virtual Status structured_output_support() const = 0;
  // How the model's files say that it is sampled (generation_config.json, GGUF's general.sampling), put over `otherwise`.
  virtual SamplingParams default_sampling(const SamplingParams& otherwise = {}) const = 0;

  // Adapters. Loading and packing run beside the engine, and requests in flight go on. A name that exists is already_exists; with
  // `replace` it is replaced: running requests keep the version they began with, new ones get the new one. A load that fails
  // leaves the name as it was; so does a pinned adapter that cannot stay in memory. A name whose files have changed is replaced
  // likewise when a request names it. With `expected_generation`, whatever `replace` says, the name is replaced only if it is at
  // that generation (AdapterInfo's; 0: there is no such name, or it was never loaded) when the load begins and when it ends; else
  // already_exists.
  virtual Status load_adapter(const AdapterSpec& spec, bool replace = false, std::optional<int> expected_generation = {}) = 0;
  // The name is gone at once; memory is freed when the last request of it ends. With `expected_generation`: already_exists when
  // it is at another.
  virtual Status unload_adapter(std::string_view name, std::optional<int> expected_generation = {}) = 0;
  // Keeps the adapter in memory, loading it first if need be, or lets it be evicted again; done when this returns.
  // resource_exhausted or too_large when the budget for adapters does not allow it; a load's own error when its files are bad.
  virtual Status pin_adapter(std::string_view name, bool pinned) = 0;
  virtual std::vector<AdapterInfo> adapters() const = 0;  // sorted by name
  // The one of that name; none when there is none, or when it lies in the adapter root and no request named it yet.
  virtual std::optional<AdapterInfo> adapter(std::string_view name) const = 0;
  // What the adapter of that name changes, by modules' names: its files, or bytes, are read again for it, beside what runs. The
  // pairs' products are not made.
  virtual Result<std::vector<AdapterLayer>> adapter_layers(std::string_view name) = 0;
  // The names of adapters(), sorted. It is the same list until a name comes, goes or stands for something else, so asking costs
  // nothing, however many there are.
  virtual AdapterNames adapter_names() const = 0;

  virtual const ModelInfo& info() const = 0;
  // What the device took up or gave up since load(), each with its reason: an operator that failed and is the CPU's now, a
  // library of fused operators that loaded or was missing. In order.
  virtual std::vector<std::string> device_notes() const = 0;
  virtual EngineStats stats() const = 0;
  // Waits, at most `limit`, for the engine's loop to answer at the end of a step that begins after the call, or at once when
  // there is nothing to compute. So an answer proves that the loop turns. deadline_exceeded: a long step, or a device that hangs.
  // unavailable: the engine ends.
  virtual Status check_health(std::chrono::milliseconds limit) = 0;
  // At once, while a step is being computed too: for probes and figures.
  virtual EngineHeartbeat heartbeat() const = 0;
  virtual EngineActivity activity() const = 0;
  // What entered and left the prefix cache in the next step that has such events, waiting for at most `limit`; each is given
  // once. False: there were none, or EngineOptions::kv_event_batches is 0. Batches that nobody took are lost, the oldest first,
  // once so many wait.
  virtual bool next_kv_events(KvEventBatch& batch, std::chrono::milliseconds limit) = 0;

  // No step begins until resume(). Requests are taken and wait; their limits of time count on. Returns when no step is computed
  // any more and `mode` is done. Asked again while it is paused, the new mode is done too. unavailable: resume() came meanwhile,
  // or the engine ends.
  virtual Status pause(PauseMode mode) = 0;
  virtual void resume() = 0;
};

CHORAL_API std::string_view version();  // "0.1.0"

}  // namespace choral
