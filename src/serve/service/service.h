// What the routes work with: the engine once it is loaded, the threads that read bodies, the answers in flight, and where the
// server stands in its life. One for a server; thread-safe.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/function_ref.h"
#include "choral/llm.h"
#include "engine/adapters/adapter_hints.h"
#include "requests/unknown_fields.h"
#include "serve/adapters/adapter_changes.h"
#include "serve/adapters/adapter_numbers.h"
#include "serve/adapters/adapter_uploads.h"
#include "serve/adapters/registered_adapters.h"
#include "serve/adapters/root_watcher.h"
#include "serve/answers/template_tools.h"
#include "serve/answers/thought_marks.h"
#include "serve/batches/batch_store.h"
#include "serve/catalogue/catalogue_folder.h"
#include "serve/catalogue/catalogue_index.h"
#include "serve/catalogue/drift.h"
#include "serve/http/allowed_hosts.h"
#include "serve/http/cors.h"
#include "serve/http/exchange.h"
#include "serve/keys/api_keys.h"
#include "serve/keys/queue_shares.h"
#include "serve/keys/request_limits.h"
#include "serve/metrics/metrics.h"
#include "serve/ranking/pair_scores.h"
#include "serve/responses/background_exchange.h"
#include "serve/responses/response_store.h"
#include "serve/service/hidden_paths.h"
#include "serve/service/live_answer.h"
#include "serve/service/observed_exchange.h"
#include "serve/service/time_limits.h"
#include "serve/service/work_queue.h"
#include "serve/tools/tools_request.h"

namespace choral::serve {

enum class Phase {
  kLoading,  // no engine yet
  kReady,
  kUnready,   // serves, but says that it will not for long
  kDraining,  // finishes what it has, takes nothing new
};

using Exchange = std::shared_ptr<ObservedExchange>;

struct ServiceOptions {
  std::vector<std::string> base_names = {};      // empty: the model's own
  std::string adapter_root = {};                 // to which adapters that clients load are bound, and which messages do not show
  bool follows_catalogue = false;                // of the adapter root, where there is one
  bool writes_catalogue = false;                 // adapters that clients load and unload go into it
  CatalogueIndex::Options catalogue_index = {};  // without a URL: none is followed
  std::string state_directory = {};              // where registered adapters survive a restart; empty: they do not
  int64_t stored_response_bytes = 0;             // that responses may take there; 0: none are kept
  int64_t stored_file_bytes = 0;                 // that files and batches may take there; 0: none are kept
  int64_t sent_adapter_bytes = 0;                // that adapters which clients send may take there; 0: none are taken
  std::vector<AdapterUse> base_adapters = {};    // at first: base_adapters()
  std::string api_key_file = {};                 // keys/api_keys.h; no key at all: everybody may ask
  std::vector<std::string> api_keys = {};
  std::vector<std::string> admin_keys = {};  // for changing adapters; none: only a server on loopback lets them be changed
  RateLimit key_limit = {};
  RateLimit adapter_limit = {};
  AllowedHosts allowed_hosts = {};             // names that requests may call the server by
  Cors cors = {};                              // pages of other sites that may read its answers
  bool is_loopback = true;                     // nobody else reaches the server
  bool has_proxies = false;                    // that tell whom a request comes from
  bool shares_prefixes = false;                // between keys
  bool has_console = true;                     // the page at `/`
  bool strict_fields = false;                  // a body's field that is not known is an error
  std::optional<ToolFormat> tool_format = {};  // of the model's tool calls; absent: as its chat template says
  std::optional<const ThoughtMarks*> thoughts =
      {};                                // how the model marks what it thinks, null: not at all; absent: as its template
  std::optional<ScoreBy> score_by = {};  // absent: by the model's head of one class, or vectors
  int readers = 2;                       // threads that read bodies
};

class Service : private LiveAnswer::Owner {
 public:
  static Result<std::unique_ptr<Service>> make(ServiceOptions options);
  ~Service() override;

  // The engine is loaded, with these options; it stays the caller's, until stop(). Adapters that were registered come back: what
  // cannot be loaded any more is said and stays registered.
  Status attach(LLM& llm, const EngineOptions& options);
  LLM* llm() const { return llm_.load(); }
  // What the engine is to count adapters' generations with, so that none is given twice, by later servers neither.
  std::shared_ptr<AdapterGenerations> generations() const { return generations_; }
  // Where the engine is to look for adapters that nobody loaded; null: in the adapter root alone.
  std::shared_ptr<const AdapterPlaces> places() const { return catalogue_ == nullptr ? nullptr : catalogue_->places(); }
  const std::vector<std::string>& base_names() const { return options_.base_names; }
  const std::string& system_fingerprint() const { return system_fingerprint_; }
  int64_t loaded_unix_s() const { return loaded_unix_s_; }
  ScoreBy score_by() const { return score_by_; }
  int64_t most_answers_at_once() const { return batch_; }
  struct AdapterLimits {
    int64_t most_at_once = 0;  // in one step; 0: no limit
    int64_t most_rank = 0;
  };
  const AdapterLimits& adapter_limits() const { return adapter_limits_; }

  // How the model writes tool calls, and what answers can be held to.
  ToolSetting tool_setting(const LLM& llm) const;
  // How it marks what it thinks; null: it does not.
  const ThoughtMarks* thoughts() const { return thoughts_; }

  Phase phase() const { return phase_.load(); }
  void set_phase(Phase phase) { phase_.store(phase); }

  // Runs `work` on a reader's thread with the engine, or answers why not: loading, draining, too much to read already.
  using Work = std::function<void(LLM&, const Exchange&)>;
  void with_engine(Exchange exchange, Work work);
  // The same while draining, for what the engine has no part in.
  void with_model(Exchange exchange, Work work);
  // The same on threads of their own, for what takes seconds while others should be read: adapters are loaded, grammars compiled.
  void with_adapters(Exchange exchange, Work work);
  void with_grammar(Exchange exchange, Work work);
  // The same on a thread of its own, for texts and tokens that no answer comes of: they make no request wait.
  void with_text(Exchange exchange, Work work);
  // The same on a thread of its own, for what waits for the engine to come to rest.
  void with_pause(Exchange exchange, Work work);
  // The same on a thread of its own, for what takes an adapter's files to be read once more.
  void with_adapter_files(Exchange exchange, Work work);
  // The same on a thread of its own: for figures, which are wanted most when readers are busy.
  void probe(Exchange exchange, Work work);
  // LLM::pause(), until the server ends: then the engine goes on, so that what is in flight comes to its end.
  Status pause(PauseMode mode);
  void end_pauses();
  // Why nothing can be computed; at once, from any thread. Fine where the engine lives.
  Status health() const;

  // Adds the adapter that `model` names to the request's own. `has_lora`: the request says who answers, if only that it is the
  // base; else base_adapters() act where `model` leaves it open too.
  void put_model(std::string_view model, bool has_lora, Request& request) const;
  // An error as clients may see it: in one line, without paths.
  HttpResponse error(const Status& status, std::string_view param = {}) const;
  HttpResponse unknown_model(std::string_view model) const;
  std::string for_clients(std::string_view message) const;
  // Where a client's path to an adapter leads: with an adapter root, into it and nowhere else.
  Result<std::string> adapter_path(const std::string& given) const;
  // The adapters of requests that leave it open who answers; none unless llama.cpp's POST /lora-adapters or --lora says so.
  std::vector<AdapterUse> base_adapters() const;
  Status set_base_adapters(std::vector<AdapterUse> adapters);
  void drop_base_adapter(std::string_view name);  // it is gone

  bool asks_for_keys() const { return !keys_->empty(); }
  // The holder of the key that the request shows; empty: no key, or a wrong one.
  std::optional<KeyHolder> key_holder(const HttpRequest& head) const;
  // It shows an admin's key.
  bool is_admins(const HttpRequest& head) const;
  // Where clients are told apart by their keys, who that is; else empty.
  std::string payer(const HttpRequest& head) const;
  const AllowedHosts& allowed_hosts() const { return options_.allowed_hosts; }
  const Cors& cors() const { return options_.cors; }
  bool is_loopback() const { return options_.is_loopback; }
  bool has_console() const { return options_.has_console; }
  bool has_strict_fields() const { return options_.strict_fields; }
  Status reload_keys() { return keys_->reload(); }

  // Holds a call to the limits of its key and of these adapters, as a request of at most so many tokens. The answer else.
  std::optional<HttpResponse> admit(const Exchange& exchange, std::span<const AdapterUse> adapters, int64_t most_tokens,
                                    RequestLimits::Grant& out);
  // Holds the request to its limits and its key's share of the queue, and gives it to the engine, for its own prompt or for each
  // of `prompts`, all of them or none; then counts it. The answer else. `model`: as the client named it.
  std::optional<HttpResponse> submit(LLM& llm, const Exchange& exchange, const std::string& model, Request request,
                                     std::vector<Prompt> prompts, LiveRequest& out);
  // Of a body with these fields that are not known: they are counted, each is logged once, and the answer's head says them.
  void warn(const Exchange& exchange, std::vector<std::string> warnings);
  void note_answer(std::string_view route, int status);
  std::string metrics_text();

  ResponseStore* responses() const { return responses_.get(); }  // null: none are kept
  BackgroundExchanges& background() { return background_; }
  ResponseEventLogs& response_events() { return response_events_; }
  BatchStore* batches() const { return batches_.get(); }  // null: none are kept
  // Whose responses, files and batches a request may see: its key's, where there are keys.
  std::string owner(const HttpRequest& head) const;

  AdapterChanges& adapter_changes() const { return *changes_; }
  AdapterUploads* adapter_uploads() const;  // null: none are taken
  AdapterNumbers& adapter_numbers() const { return *numbers_; }
  // What the fleet's catalogue says; null: there is none.
  std::shared_ptr<const FollowedCatalogue::View> catalogue() const { return catalogue_ == nullptr ? nullptr : catalogue_->now(); }
  FollowedCatalogue::State catalogue_state() const;
  Metrics* metrics() const { return metrics_.get(); }
  // Those of the engine, and what lies in the adapter root and was never asked for, or cannot be. Sorted by name; `id` is
  // llama.cpp's number.
  std::vector<AdapterInfo> all_adapters() const;
  // What a request may name, whether it ever did: those of the engine and those that lie in the adapter root. Sorted; the same
  // list until a name comes or goes.
  std::shared_ptr<const std::vector<std::string>> adapter_names() const;
  // What `write` makes of them, which is one text for all who ask: written once for each such list.
  using WriteNames = FunctionRef<std::string(const std::vector<std::string>& names)>;
  std::shared_ptr<const std::string> written_for_names(WriteNames write) const;

  // Sends a text of any length, as the client reads it.
  void send(const Exchange& exchange, Headers headers, std::unique_ptr<AnswerText> text);
  void start(Exchange exchange, LiveRequest request, std::unique_ptr<AnswerForm> form, bool is_streamed);
  void abort_all(const Status& status);
  // Ends the readers' threads; later requests are refused.
  void stop();

 private:
  // --- LiveAnswer::Owner ---
  ApiError explain(const Status& status) const override;
  void on_end(const LiveAnswer& answer) override;
  bool write_beside(std::function<void()> work) override { return writers_->push(std::move(work)); }

  explicit Service(ServiceOptions options) : options_(std::move(options)) {}
  void run(WorkQueue& queue, Exchange exchange, Work work);
  // Whose accounts a request for these adapters is on: the earlier generations of a name are on the name's.
  std::vector<AdapterUse> accounts_of(const LLM& llm, std::vector<AdapterUse> adapters) const;
  Result<QueueShares::Place> place_of(LLM& llm, const HttpRequest& head, std::string_view key, int64_t answers);
  HttpResponse refusal(Rejection reason, const Status& status, double retry_after_s);
  std::shared_ptr<const HiddenPaths> hidden_paths(const LLM& llm) const;
  // service_adapters.cc
  Status open_catalogue();
  void reload_registered(LLM& llm);
  Status drop_lost_uploads();
  Status watch_root(LLM& llm);
  void take_root_change(LLM& llm, const RootChange& change);
  std::optional<CatalogueFigures> catalogue_figures(std::span<const AdapterInfo> adapters) const;
  Status choose_scores(const ModelInfo& info);

  ServiceOptions options_;
  std::atomic<LLM*> llm_ = nullptr;
  std::atomic<Phase> phase_ = Phase::kLoading;
  int64_t loaded_unix_s_ = 0;
  std::string system_fingerprint_;
  TemplateTools template_tools_;
  const ThoughtMarks* thoughts_ = nullptr;
  ScoreBy score_by_ = ScoreBy::kVectors;
  TimeLimits time_limits_;
  std::unique_ptr<ApiKeys> keys_;
  std::unique_ptr<RequestLimits> limits_;
  QueueShares shares_;
  int64_t batch_ = 0, most_waiting_ = 0;            // the engine's, in answers
  std::shared_ptr<RegisteredAdapters> registered_;  // null: nothing outlasts the server
  std::unique_ptr<ResponseStore> responses_;
  std::unique_ptr<BatchStore> batches_;
  ResponseEventLogs response_events_;
  BackgroundExchanges background_;
  std::shared_ptr<AdapterGenerations> generations_;
  std::unique_ptr<AdapterNumbers> numbers_;
  std::unique_ptr<AdapterUploads> uploads_;       // null: no state directory, so there are none
  std::unique_ptr<FollowedCatalogue> catalogue_;  // null: none is followed
  CatalogueFolder* written_catalogue_ = nullptr;  // catalogue_, if clients' changes go into it
  DriftLog drift_log_;
  std::unique_ptr<AdapterChanges> changes_;  // from attach() on
  std::unique_ptr<Metrics> metrics_;         // before what is counted; from attach() on
  std::unique_ptr<RootWatcher> watcher_;
  mutable engine::HintBudget hints_;
  std::unique_ptr<WorkQueue> readers_, probes_, adapter_calls_, adapter_readers_, grammar_readers_, text_calls_, pauses_,
      writers_;
  std::atomic<int> pausing_ = 0;
  std::atomic<bool> pauses_ended_ = false;
  AdapterLimits adapter_limits_;
  bool keeps_generations_ = false;

  mutable std::mutex mutex_;  // guards the members below
  std::vector<AdapterUse> base_adapters_;
  requests::UnknownFieldLog unknown_fields_;
  std::unordered_map<const LiveAnswer*, std::weak_ptr<LiveAnswer>> live_;

  // What was made of lists of adapters, until they change; made by whoever asks first.
  mutable std::mutex lists_mutex_;
  mutable AdapterNames named_by_engine_, placed_by_engine_;
  mutable RootWatcher::Adapters named_by_root_;
  mutable std::shared_ptr<const std::vector<std::string>> names_, written_names_;
  mutable std::shared_ptr<const std::string> written_;
  mutable std::shared_ptr<const HiddenPaths> hidden_paths_;
};

}  // namespace choral::serve
