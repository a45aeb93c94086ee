#include "serve/service/service.h"

#include <algorithm>
#include <chrono>
#include <ctime>
#include <limits>
#include <thread>

#include "base/clock.h"
#include "base/log.h"
#include "base/nearest_name.h"
#include "base/out_of_memory.h"
#include "engine/adapters/counted_generations.h"
#include "lora/peft/adapter_name.h"
#include "lora/store/packed_adapter.h"
#include "serve/http/error_response.h"
#include "serve/keys/token_charge.h"
#include "serve/openai/system_fingerprint.h"
#include "serve/service/client_text.h"
#include "serve/service/model_names.h"
#include "serve/service/whole_answer.h"

namespace choral::serve {
namespace {

constexpr size_t kMostUnread = 1024;  // requests whose bodies wait to be read; the engine's queue has a limit of its own
constexpr int kContextsRead = 4;      // of a prompt that is too long: RequestReader counts no further
constexpr int kAdapterThreads = 2;    // as the engine's loaders
constexpr size_t kMostPauses = 16;    // that wait for one under way
constexpr int kGrammarThreads = 4;    // they wait for the compiler's, whose results are kept

// Where nothing is kept, what this server's generations are above: another start in a later second has others, as long as a name
// changes less than once a second.
int generation_of_now() {
  constexpr int64_t kEpoch = 1'735'689'600;  // 2025
  return static_cast<int>(std::clamp<int64_t>(std::time(nullptr) - kEpoch, 0, std::numeric_limits<int>::max() / 2));
}

using Streams = std::vector<std::unique_ptr<ResponseStream>>;

// For the request's own prompt where there are no others.
Result<Streams> submitted(LLM& llm, Request request, std::vector<Prompt> prompts) {
  if (!prompts.empty()) return llm.submit_each(std::move(request), std::move(prompts));
  CHORAL_TRY(auto stream, llm.submit(std::move(request)));
  Streams one;
  one.push_back(std::move(stream));
  return one;
}

}  // namespace

Result<std::unique_ptr<Service>> Service::make(ServiceOptions options) {
  std::unique_ptr<Service> service(new Service(std::move(options)));
  const ServiceOptions& o = service->options_;
  std::vector<std::pair<std::string, KeyRole>> given;
  for (const auto& key : o.api_keys) given.emplace_back(key, KeyRole::kUser);
  for (const auto& key : o.admin_keys) given.emplace_back(key, KeyRole::kAdmin);
  CHORAL_TRY(service->keys_, ApiKeys::make(o.api_key_file, given));
  for (const auto& warning : service->keys_->warnings()) CHORAL_LOG(kWarn, "{}", warning);
  service->limits_ = std::make_unique<RequestLimits>(o.key_limit, o.adapter_limit);
  CHORAL_RETURN_IF_ERROR(service->set_base_adapters(o.base_adapters));
  if (!o.state_directory.empty()) {
    CHORAL_TRY(service->registered_, RegisteredAdapters::open(o.state_directory));
    service->generations_ = service->registered_;
  } else {
    service->generations_ = std::make_shared<engine::CountedGenerations>(generation_of_now());
  }
  if (o.stored_response_bytes > 0) {
    if (o.state_directory.empty())
      return invalid_argument("--store-responses needs --state-dir, the folder that they are kept in");
    CHORAL_TRY(service->responses_, ResponseStore::open(o.state_directory, {.bytes = o.stored_response_bytes}));
  }
  if (o.stored_file_bytes > 0 && !o.state_directory.empty()) {
    CHORAL_TRY(service->batches_,
               BatchStore::open(o.state_directory, {.bytes = o.stored_file_bytes, .is_shared = service->keys_->several()}));
  }
  if (!o.state_directory.empty()) {
    CHORAL_TRY(service->uploads_, AdapterUploads::open(o.state_directory, {.bytes = o.sent_adapter_bytes}));
    CHORAL_RETURN_IF_ERROR(service->drop_lost_uploads());
  } else if (o.sent_adapter_bytes > 0) {
    return invalid_argument("--store-adapters needs --state-dir, the folder that they are kept in");
  }
  CHORAL_RETURN_IF_ERROR(service->open_catalogue());
  service->numbers_ = std::make_unique<AdapterNumbers>(service->registered_.get());
  CHORAL_RETURN_IF_ERROR(service->numbers_->read());
  CHORAL_TRY(service->readers_, WorkQueue::make("the threads that read requests", o.readers, kMostUnread));
  CHORAL_TRY(service->adapter_calls_, WorkQueue::make("the threads that change adapters", kAdapterThreads, kMostUnread));
  CHORAL_TRY(service->adapter_readers_, WorkQueue::make("the thread that looks into adapters", 1, kMostUnread));
  CHORAL_TRY(service->grammar_readers_,
             WorkQueue::make("the threads that read requests with grammars", kGrammarThreads, kMostUnread));
  CHORAL_TRY(service->text_calls_, WorkQueue::make("the thread that tokenises", 1, kMostUnread));
  CHORAL_TRY(service->pauses_, WorkQueue::make("the thread that pauses the engine", 1, kMostPauses));
  CHORAL_TRY(service->probes_, WorkQueue::make("the thread that writes figures", 1, kMostUnread));
  // One piece of an answer at a time, and answers are fewer than what the engine takes: nothing is refused.
  CHORAL_TRY(service->writers_, WorkQueue::make("the thread that writes long answers", 1, std::numeric_limits<size_t>::max()));
  return service;
}

Service::~Service() { stop(); }

AdapterUploads* Service::adapter_uploads() const { return options_.sent_adapter_bytes > 0 ? uploads_.get() : nullptr; }

Status Service::choose_scores(const ModelInfo& info) {
  const bool has_head = info.class_labels.size() == 1;
  score_by_ = options_.score_by.value_or(has_head ? ScoreBy::kHead : ScoreBy::kVectors);
  if (score_by_ != ScoreBy::kHead || has_head) return {};
  return unsupported("--score-by head: this model has a head of {} classes, and one is wanted; choose vectors or yes-no",
                     info.class_labels.size());
}

Status Service::attach(LLM& llm, const EngineOptions& options) {
  if (options_.base_names.empty()) options_.base_names.push_back(llm.info().name);
  loaded_unix_s_ = std::time(nullptr);
  system_fingerprint_ = choral::serve::system_fingerprint(llm.info());
  template_tools_ = tools_of_template(llm.info().tool_template);
  if (options_.tool_format) {
    template_tools_.format = *options_.tool_format;
    template_tools_.knows_format = true;
  } else if (!template_tools_.note.empty()) {
    CHORAL_LOG(kInfo, "tools: {}", template_tools_.note);
  }
  thoughts_ = options_.thoughts ? *options_.thoughts : thoughts_of_template(llm.info().tool_template);
  if (thoughts_ != nullptr) CHORAL_LOG(kInfo, "thoughts: read as {}'s (--reasoning-parser says otherwise)", thoughts_->name);
  CHORAL_RETURN_IF_ERROR(choose_scores(llm.info()));
  batch_ = options.max_num_seqs;
  most_waiting_ = options.max_waiting;
  adapter_limits_ = {.most_at_once = options.max_loras, .most_rank = options.max_lora_rank};
  keeps_generations_ = options.generations_alive > 1;
  time_limits_ = {.timeout_s = options.request_timeout_s, .queue_timeout_s = options.queue_timeout_s};
  metrics_ = std::make_unique<Metrics>(options_.base_names.front(), llm.info(), options);
  changes_ = std::make_unique<AdapterChanges>(llm, registered_.get(), uploads_.get(), written_catalogue_);
  std::vector<std::string> given;  // have the first numbers, in the order of the command line
  for (const auto& adapter : options.adapters) given.push_back(adapter.name);
  numbers_->add(given);
  if (registered_) reload_registered(llm);
  if (!options_.adapter_root.empty() || catalogue_) CHORAL_RETURN_IF_ERROR(watch_root(llm));
  llm_.store(&llm);
  numbers_->add(*adapter_names());
  phase_.store(Phase::kReady);
  return {};
}

Status Service::pause(PauseMode mode) {
  struct Count {
    std::atomic<int>& of;
    explicit Count(std::atomic<int>& counted) : of(counted) { ++of; }
    ~Count() { --of; }
  } const count(pausing_);
  if (pauses_ended_.load()) return unavailable("the server is shutting down");
  return llm()->pause(mode);
}

void Service::end_pauses() {
  pauses_ended_.store(true);
  LLM* const engine = llm();
  if (engine == nullptr) return;
  constexpr std::chrono::milliseconds kLook{1};
  for (engine->resume(); pausing_.load() > 0; engine->resume()) std::this_thread::sleep_for(kLook);
}

void Service::stop() {
  end_pauses();
  for (const auto* queue :
       {&readers_, &grammar_readers_, &adapter_calls_, &adapter_readers_, &text_calls_, &pauses_, &probes_, &writers_}) {
    if (*queue) (*queue)->stop();
  }
  watcher_.reset();  // which requests that are being read may list
  llm_.store(nullptr);
}

std::optional<KeyHolder> Service::key_holder(const HttpRequest& head) const {
  if (!head.on_behalf_of.empty()) return keys_->find_salt(head.on_behalf_of);
  return keys_->find(presented_key(head.headers.get("Authorization"), head.headers.get("X-Api-Key")));
}

bool Service::is_admins(const HttpRequest& head) const {
  const auto holder = key_holder(head);
  return holder && holder->role == KeyRole::kAdmin;
}

std::optional<HttpResponse> Service::admit(const Exchange& exchange, std::span<const AdapterUse> adapters, int64_t most_tokens,
                                           RequestLimits::Grant& out) {
  const auto holder = key_holder(exchange->request());
  auto verdict = limits_->admit(holder ? holder->name : "", adapters, most_tokens, now_s());
  if (!verdict.status.ok())
    return refusal(verdict.by_adapter ? Rejection::kAdapterLimit : Rejection::kKeyLimit, verdict.status, verdict.retry_after_s);
  out = std::move(verdict.grant);
  return std::nullopt;
}

std::string Service::owner(const HttpRequest& head) const {
  const auto holder = key_holder(head);
  return holder ? holder->salt : "";
}

std::string Service::payer(const HttpRequest& head) const {
  const auto holder = keys_->several() ? key_holder(head) : std::nullopt;
  return holder ? fmt::format("key {}", holder->name) : "";
}

std::optional<HttpResponse> Service::submit(LLM& llm, const Exchange& exchange, const std::string& model, Request request,
                                            std::vector<Prompt> prompts, LiveRequest& out) {
  const auto holder = key_holder(exchange->request());
  const std::string key = holder ? holder->name : "";
  time_limits_.hold(request);
  request.in_background = exchange->request().in_background;
  // Else usage.cached_tokens, and the time to the first token, would tell each key what others have asked.
  if (holder && !options_.shares_prefixes) request.cache_salt = fmt::format("{}:{}", holder->salt, request.cache_salt);
  RequestLimits::Grant grant;
  const int max_model_len = llm.info().max_model_len;
  const std::vector<AdapterUse> adapters = accounts_of(llm, request.adapters);
  if (auto refused = admit(exchange, adapters, most_tokens(request, prompts, max_model_len), grant)) return refused;
  const int64_t answers = request.embedding ? 1 : answers_made(request.sampling);  // to a prompt
  auto place = place_of(llm, exchange->request(), key, answers * std::max<int64_t>(std::ssize(prompts), 1));
  if (!place.ok()) return refusal(Rejection::kQueueShare, place.status(), RateLimiter::kMinRetry_s);
  const std::string named = request.adapters.empty() ? "" : request.adapters.front().name;
  SamplingParams counted;
  counted.n = request.sampling.n;
  counted.max_tokens = request.sampling.max_tokens;
  const int64_t read = tokens_to_read(request, prompts, int64_t{kContextsRead} * max_model_len);
  const double arrival_s = now_s();
  auto streams = submitted(llm, std::move(request), std::move(prompts));
  if (!streams.ok()) {
    const Status& status = streams.status();
    if (status.code() == Code::kResourceExhausted) metrics_->reject(Rejection::kQueueFull);
    if (status.code() == Code::kNotFound && !adapters.empty()) return unknown_model(model.empty() ? named : model);
    if (status.code() != Code::kResourceExhausted) grant.settle(read);  // the queue is looked at first
    return error(status);
  }
  out.grant = std::move(grant);
  for (auto& stream : *streams)
    out.streams.push_back({std::move(stream), metrics_->begin(adapters, counted, arrival_s), place->split(answers)});
  return std::nullopt;
}

std::vector<AdapterUse> Service::accounts_of(const LLM& llm, std::vector<AdapterUse> adapters) const {
  if (!keeps_generations_) return adapters;
  for (auto& use : adapters) {
    const auto [plain, generation] = lora::split_generation(use.name);
    if (generation && !llm.adapter(use.name)) use.name = std::string(plain);
  }
  return adapters;
}

// Where clients are told apart, by their keys or else by their addresses, each leaves room to others. On loopback nothing tells.
Result<QueueShares::Place> Service::place_of(LLM& llm, const HttpRequest& head, std::string_view key, int64_t answers) {
  const bool by_key = keys_->several();
  if (!by_key && options_.is_loopback && !options_.has_proxies) return QueueShares::Place();
  const std::string client = by_key ? fmt::format("key '{}'", key) : fmt::format("client {}", head.payer);
  return shares_.take(client, answers, {.batch = batch_, .waiting = llm.stats().waiting, .most_waiting = most_waiting_});
}

HttpResponse Service::refusal(Rejection reason, const Status& status, double retry_after_s) {
  metrics_->reject(reason);
  HttpResponse response = error(status);
  if (response.status == 429) response.headers.set("Retry-After", fmt::format("{:.0f}", retry_after_s));
  return response;
}

void Service::warn(const Exchange& exchange, std::vector<std::string> warnings) {
  if (warnings.empty()) return;
  metrics_->unknown_fields(std::ssize(warnings));
  for (const auto& warning : warnings) {
    using Say = requests::UnknownFieldLog::Say;
    std::unique_lock lock(mutex_);
    const Say say = unknown_fields_.meet(warning);
    lock.unlock();
    if (say != Say::kNothing) CHORAL_LOG(kWarn, "in requests: {}", say == Say::kIt ? warning : requests::kMoreUnknownFields);
  }
  exchange->warn(std::move(warnings));
}

void Service::note_answer(std::string_view route, int status) {
  if (llm() != nullptr) metrics_->http_answer(route, status);
}

Status Service::health() const {
  const LLM* const engine = llm();
  if (engine == nullptr) return unavailable("the model is being loaded; GET /readyz tells when it is there");
  const EngineHeartbeat heart = engine->heartbeat();
  if (heart.is_alive()) return {};
  const std::string what =
      heart.step_tokens > 0 ? fmt::format("a step of {} tokens", heart.step_tokens) : std::string("what lies between two steps");
  return unavailable("the engine is at {} since {:.0f} s, and {:.0f} s are the most that it should take: it hangs, or its device",
                     what, heart.silent_s, heart.limit_s);
}

std::string Service::metrics_text() {
  LLM& engine = *llm();
  auto adapters = all_adapters();
  const auto catalogue = catalogue_figures(adapters);
  const EngineView view{.stats = engine.stats(),
                        .adapters = std::move(adapters),
                        .activity = engine.activity(),
                        .heartbeat = engine.heartbeat(),
                        .device_notes = engine.device_notes().size(),
                        .catalogue = catalogue};
  return metrics_->exposition(view, static_cast<double>(std::time(nullptr)));
}

ToolSetting Service::tool_setting(const LLM& llm) const {
  return {.format = template_tools_.format,
          .has_grammars = llm.structured_output_support().ok(),
          .limits = {},
          .knows_format = template_tools_.knows_format,
          .shows_tools = template_tools_.shows_tools,
          .shows_calls = template_tools_.shows_calls};
}

void Service::with_engine(Exchange exchange, Work work) {
  if (phase() == Phase::kDraining) {
    if (llm() != nullptr) metrics_->reject(Rejection::kDraining);
    return exchange->respond(error_response(unavailable("the server is shutting down")));
  }
  with_model(std::move(exchange), std::move(work));
}

void Service::with_model(Exchange exchange, Work work) { run(*readers_, std::move(exchange), std::move(work)); }
void Service::with_adapters(Exchange exchange, Work work) { run(*adapter_calls_, std::move(exchange), std::move(work)); }
void Service::with_adapter_files(Exchange exchange, Work work) { run(*adapter_readers_, std::move(exchange), std::move(work)); }
void Service::with_grammar(Exchange exchange, Work work) { run(*grammar_readers_, std::move(exchange), std::move(work)); }
void Service::with_text(Exchange exchange, Work work) { run(*text_calls_, std::move(exchange), std::move(work)); }
void Service::with_pause(Exchange exchange, Work work) { run(*pauses_, std::move(exchange), std::move(work)); }
void Service::probe(Exchange exchange, Work work) { run(*probes_, std::move(exchange), std::move(work)); }

void Service::run(WorkQueue& queue, Exchange exchange, Work work) {
  if (llm() == nullptr)
    return exchange->respond(error_response(unavailable("the model is being loaded; GET /readyz tells when it is there")));
  const bool taken = queue.push([this, exchange, work = std::move(work)] {
    if (exchange->closed()) return;
    const Status done = or_out_of_memory("the request cannot be read", [&] { return work(*llm(), exchange), Status(); });
    if (!done.ok()) exchange->respond(error(done));
  });
  if (taken) return;
  metrics_->reject(Rejection::kQueueFull);
  exchange->respond(error_response(resource_exhausted("{} requests wait to be read; try again", kMostUnread)));
}

void Service::put_model(std::string_view model, bool has_lora, Request& request) const {
  if (const auto name = adapter_named(model, options_.base_names); !name.empty()) {
    request.adapters.insert(request.adapters.begin(), {std::string(name), 1.0f});
  } else if (!has_lora && leaves_adapter_open(model, options_.base_names)) {
    request.adapters = base_adapters();
  }
}

std::vector<AdapterUse> Service::base_adapters() const {
  const std::lock_guard lock(mutex_);
  return base_adapters_;
}

Status Service::set_base_adapters(std::vector<AdapterUse> adapters) {
  if (adapters.size() > lora::kMaxVoiceTerms)
    return invalid_argument("{} adapters for all requests that name none; at most {} can act together", adapters.size(),
                            lora::kMaxVoiceTerms);
  const std::lock_guard lock(mutex_);
  base_adapters_ = std::move(adapters);
  return {};
}

void Service::drop_base_adapter(std::string_view name) {
  const std::lock_guard lock(mutex_);
  std::erase_if(base_adapters_, [name](const AdapterUse& use) { return use.name == name; });
}

std::string Service::for_clients(std::string_view message) const {
  std::string text = in_one_line(message);
  if (const LLM* const engine = llm(); engine != nullptr && text.find('/') != text.npos) {
    text = hidden_paths(*engine)->hide(text, "its folder");
    replace_all(text, engine->info().path, "the model");
  }
  replace_all(text, options_.adapter_root, "the adapters' folder");
  return without_absolute_paths(text);
}

std::shared_ptr<const HiddenPaths> Service::hidden_paths(const LLM& llm) const {
  const AdapterNames now = llm.adapter_names();
  const std::lock_guard lock(lists_mutex_);
  if (placed_by_engine_ != now) hidden_paths_ = std::make_shared<const HiddenPaths>(now);
  placed_by_engine_ = now;
  return hidden_paths_;
}

ApiError Service::explain(const Status& status) const {
  ApiError error = api_error(status);
  error.message = for_clients(error.message);
  return error;
}

HttpResponse Service::error(const Status& status, std::string_view param) const {
  ApiError error = explain(status);
  error.param = param;
  return error_response(error);
}

HttpResponse Service::unknown_model(std::string_view model) const {
  if (watcher_) {
    const auto faults = watcher_->faults();
    if (const auto fault = faults->find(adapter_named(model, options_.base_names)); fault != faults->end()) {
      return error(not_found("'{}' lies in the adapters' folder, but cannot be used: {}", fault->first, fault->second.message()),
                   "model");
    }
  }
  const std::string name(model.substr(0, 128));
  if (const auto [plain, generation] = lora::split_generation(adapter_named(model, options_.base_names)); generation) {
    if (const auto known = llm()->adapter(plain)) {
      std::string others;
      for (const auto& one : known->earlier) others += fmt::format(", {}@{}", plain, one.generation);
      return error_response(
          {.status = 404,
           .message =
               fmt::format("there is no generation {} of '{}' here, or no more; there are {}@{}{} (--adapter-generations says "
                           "how many are kept)",
                           *generation, plain, plain, known->generation, others),
           .code = "model_not_found",
           .param = "model"});
    }
  }
  NearestName near(name);
  if (hints_.take()) {
    for (const auto& base : options_.base_names) near.consider(base);
    const auto adapters = adapter_names();
    for (const auto& adapter : *adapters) near.consider(adapter);
  }
  const std::string& nearest = near.best();
  return error_response(
      {.status = 404,
       .message = fmt::format("the model '{}' does not exist here{}; GET /v1/models lists the base and its adapters", name,
                              nearest.empty() ? "" : fmt::format(", did you mean '{}'?", nearest)),
       .code = "model_not_found",
       .param = "model"});
}

void Service::send(const Exchange& exchange, Headers headers, std::unique_ptr<AnswerText> text) {
  send_text(exchange, std::move(headers), std::move(text),
            [this](std::function<void()> work) { return write_beside(std::move(work)); });
}

void Service::start(Exchange exchange, LiveRequest request, std::unique_ptr<AnswerForm> form, bool is_streamed) {
  request.told = [exchange](const Usage& used, const std::string& reason) { exchange->note_end(used, reason); };
  auto answer = std::make_shared<LiveAnswer>(static_cast<LiveAnswer::Owner&>(*this), std::move(exchange), std::move(request),
                                             std::move(form), is_streamed);
  {
    const std::lock_guard lock(mutex_);
    live_[answer.get()] = answer;  // in place of one that ended with its I/O thread
  }
  answer->start();
}

void Service::on_end(const LiveAnswer& answer) {
  const std::lock_guard lock(mutex_);
  live_.erase(&answer);
}

void Service::abort_all(const Status& status) {
  std::vector<std::shared_ptr<LiveAnswer>> all;
  {
    const std::lock_guard lock(mutex_);
    for (const auto& [key, answer] : live_) {
      if (auto held = answer.lock()) all.push_back(std::move(held));
    }
  }
  for (const auto& answer : all) answer->abort(status);
}

}  // namespace choral::serve
