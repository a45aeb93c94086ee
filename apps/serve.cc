// `choral serve`: an OpenAI-compatible server where `model` names the adapter.
#include <sys/resource.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <mutex>

#include "answer_flags.h"
#include "base/log.h"
#include "base/printable.h"
#include "command.h"
#include "engine_flags.h"
#include "interrupts.h"
#include "output_file.h"
#include "serve/server.h"
#include "service_manager.h"
#include "settings.h"
#include "unknown_variables.h"
#include "welcome.h"

namespace choral::apps {
namespace {

struct ServeFlags {
  EngineFlags engine;
  serve::ServerOptions server;
  serve::TlsOptions tls;
  std::string config;
  std::string access_log = "text";
  std::string stored_responses = "0";
  std::string stored_files = "1G";
  std::string sent_adapters = "0";
  std::string kv_events;
  std::string fetched_adapters = "10G";
  bool lora_without_apply = false;
  double unready_s = 0;
  double drain_s = 30;
};

// Ctrl-C and SIGTERM: the first ends the waiting, the next ones what follows it.
class Ending {
 public:
  void signal() {
    const std::lock_guard lock(mutex_);
    ++signals_;
    changed_.notify_all();
  }
  // The model is of no more use.
  void lose(const Status& why) {
    const std::lock_guard lock(mutex_);
    reason_ = why;
    ++signals_;
    changed_.notify_all();
  }
  Status reason() const {
    const std::lock_guard lock(mutex_);
    return reason_;
  }
  void wait() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return signals_ > 0; });
  }
  // False: another signal came meanwhile.
  bool wait_on(double seconds) {
    std::unique_lock lock(mutex_);
    return !changed_.wait_for(lock, std::chrono::duration<double>(seconds), [&] { return signals_ > 1; });
  }
  bool is_urgent() const {
    const std::lock_guard lock(mutex_);
    return signals_ > 1;
  }

 private:
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  int signals_ = 0;
  Status reason_;
};

// A name that is no pattern.
std::string plain_host(const std::vector<std::string>& allowed) {
  const auto plain = std::find_if(allowed.begin(), allowed.end(), [](const auto& name) { return name.find('*') == name.npos; });
  return plain != allowed.end() ? *plain : "";
}

// What of it the flags say.
WelcomeFacts welcome_facts(const ServeFlags& flags) {
  const auto& server = flags.server;
  return {.addresses = {},
          .model = server.base_names.empty() ? "" : server.base_names.front(),
          .host = plain_host(server.allowed_hosts),
          .has_chat_template = false,
          .has_console = server.has_console,
          .wants_key = !server.api_keys.empty() || !server.admin_keys.empty() || !server.api_key_file.empty(),
          .wants_certificate = !flags.tls.client_ca_file.empty()};
}

void print_welcome(WelcomeFacts facts, const serve::Server& server, const LLM& llm) {
  facts.addresses = server.addresses();
  facts.has_chat_template = llm.info().has_chat_template;
  const auto adapters = llm.adapters();
  const auto usable =
      std::find_if(adapters.begin(), adapters.end(), [](const auto& a) { return a.state != AdapterState::kFailed; });
  if (usable != adapters.end()) {
    facts.model = usable->name;
  } else if (facts.model.empty()) {
    facts.model = llm.info().name;
  }
  say("{}", welcome_text(facts));
}

Result<serve::AccessLog> parse_access_log(std::string_view form) {
  if (form == "off") return serve::AccessLog::kOff;
  if (form == "text") return serve::AccessLog::kText;
  if (form == "json") return serve::AccessLog::kJson;
  return invalid_argument("--access-log {}: choose text, json or off", form);
}

// A connection is a descriptor, and the usual soft limit is far below what the server may have; what the system refuses stays.
void raise_file_limit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  if (setrlimit(RLIMIT_NOFILE, &limit) != 0) CHORAL_LOG(kWarn, "the limit of open files stays as it is");
}

// llama.cpp's --lora PATH acts on whoever does not ask for another: so does it here where it has no name to be asked for by.
std::vector<AdapterUse> adapters_that_act(const ServeFlags& flags) {
  std::vector<AdapterUse> uses;
  if (flags.lora_without_apply) return uses;
  for (auto& name : unnamed_adapters(flags.engine.adapters)) uses.push_back({.name = std::move(name)});
  return uses;
}

void say_who_answers(const std::vector<AdapterUse>& uses) {
  std::string names;
  for (const auto& use : uses) names += (names.empty() ? "" : " + ") + use.name;
  if (!names.empty())
    say("choral: {} answers where a request names no adapter, as --lora PATH has it in llama.cpp; `base` is the base\n",
        terminal_line(names));
}

Status run(ServeFlags flags) {
  raise_file_limit();
  const ServiceManager manager;
  CHORAL_TRY(const auto interrupts, Interrupts::make());
  if (flags.tls.certificate_file.empty() != flags.tls.key_file.empty())
    return invalid_argument("--ssl-certfile and --ssl-keyfile belong together");
  if (!flags.tls.certificate_file.empty()) flags.server.http.tls = flags.tls;
  CHORAL_TRY(flags.server.access_log, parse_access_log(flags.access_log));
  CHORAL_TRY(flags.server.stored_response_bytes, parse_size(flags.stored_responses).while_("--store-responses"));
  CHORAL_TRY(flags.server.stored_file_bytes, parse_size(flags.stored_files).while_("--store-files"));
  CHORAL_TRY(flags.server.sent_adapter_bytes, parse_size(flags.sent_adapters).while_("--store-adapters"));
  CHORAL_TRY(flags.server.kv_events, serve::kv_event_settings(flags.kv_events));
  if (flags.server.kv_events.enabled) {
    if (!flags.engine.options.enable_prefix_caching)
      return invalid_argument("--kv-events-config: without prefix caching there are no events; leave out one of the two flags");
    flags.engine.options.kv_event_batches = flags.server.kv_events.max_queue_size;
  }
  CHORAL_TRY(flags.server.catalogue.most_bytes, parse_size(flags.fetched_adapters).while_("--adapter-cache"));
  flags.server.adapter_root = flags.engine.options.adapter_root;
  flags.server.follows_catalogue = true;
  flags.server.base_adapters = adapters_that_act(flags);
  const std::vector<AdapterUse> acting = flags.server.base_adapters;
  Ending ending;                      // outlives the model, which may tell it
  std::unique_ptr<LLM> llm;           // outlives the server
  std::atomic<bool> hung_up = false;  // before there was a server to tell
  const Interrupts::Scope starting(*interrupts, {.call = {}, .hang_up = [&hung_up] { hung_up = true; }});
  WelcomeFacts welcome = welcome_facts(flags);
  CHORAL_TRY(const auto server, serve::Server::start(std::move(flags.server)));
  const auto reload = [&] { server->reload_files(); };
  flags.engine.tells_memory = true;
  const Interrupts::Scope loading(*interrupts, {.call = {}, .hang_up = reload});
  if (hung_up) reload();
  CHORAL_TRY(auto options, engine_options(flags.engine));
  options.adapter_generations = server->generations();
  options.adapter_places = server->places();
  options.on_lost = [&ending](const Status& why) { ending.lose(why); };
  CHORAL_TRY(llm, load_llm(flags.engine, options));
  CHORAL_RETURN_IF_ERROR(server->attach(*llm, options));

  const auto end = [&] {
    ending.signal();
    if (ending.is_urgent()) server->abort();
  };
  const Interrupts::Scope scope(*interrupts, {.call = end, .again = true, .hang_up = reload});
  if (!flags.engine.quiet) {
    say_who_answers(acting);
    print_welcome(std::move(welcome), *server, *llm);
  }
  manager.tell_ready();
  ending.wait();
  manager.tell_ending();
  server->set_unready();
  if (flags.unready_s > 0) ending.wait_on(flags.unready_s);
  if (!flags.engine.quiet) say("choral: ending: answers in flight have {:.0f} s; a second signal cuts them off\n", flags.drain_s);
  server->drain(std::chrono::milliseconds(ending.is_urgent() ? 0 : static_cast<int64_t>(flags.drain_s * 1000)));
  return ending.reason();
}

void add_serve_flags(CLI::App& app, ServeFlags& flags) {
  add_model_flag(app, flags.engine);
  serve::HttpServerOptions& http = flags.server.http;
  const auto option = [&app](const char* names, auto& value, const std::string& what, const char* type) {
    return app.add_option(names, value, what)->type_name(type)->group("Server");
  };
  option("--host", http.host, "address to listen on: this machine alone unless said otherwise (127.0.0.1)", "ADDRESS");
  option("--port", http.port, "port to listen on; 0 = a free one (8000)", "N");
  option("--uds", http.unix_path, "listen on this unix socket too", "PATH");
  option("--allowed-hosts", flags.server.allowed_hosts,
         "names in the Host and Origin headers of requests, with commas, * for any (on loopback: this machine's; else any Host)",
         "NAMES")
      ->delimiter(',');
  option("--cors-origins", flags.server.cors_origins,
         "sites, with commas, whose pages may use this server: https://app.example.com, localhost for this machine's, * for any "
         "(none)",
         "ORIGINS")
      ->delimiter(',');
  option("--trusted-proxies", http.trusted_proxies,
         "networks, with commas, of proxies whose X-Forwarded-For says whom a request comes from; unix: the socket's (none)",
         "NETWORKS")
      ->delimiter(',');
  option("--ssl-certfile", flags.tls.certificate_file,
         "TLS: the certificate and its chain, PEM; read again when it or its key changes, and at SIGHUP", "FILE");
  option("--ssl-keyfile", flags.tls.key_file, "TLS: its key, PEM", "FILE");
  option("--ssl-ca-certs", flags.tls.client_ca_file, "TLS: clients must show a certificate signed by one of these, PEM", "FILE");
  option("--api-key", flags.server.api_keys, "who may ask: clients send one of these keys (everybody)", "KEY");
  option("--api-key-file", flags.server.api_key_file,
         "keys, one a line: NAME:SHA256 [admin], or the key itself; read again when it changes, and at SIGHUP", "FILE");
  option("--admin-api-key", flags.server.admin_keys, "who may change adapters; without one only this machine may", "KEY");
  option("--max-requests-per-key", flags.server.key_share.requests, "in flight at a time; 0 = any number (0)", "N");
  option("--max-requests-per-adapter", flags.server.adapter_share.requests, "the same for each adapter (0)", "N");
  option("--tokens-per-second-per-key", flags.server.key_share.tokens_per_s,
         "prompt and answer, in the mean; a minute's at once; 0 = any number (0)", "N");
  option("--tokens-per-second-per-adapter", flags.server.adapter_share.tokens_per_s, "the same for each adapter (0)", "N");
  app.add_flag("--share-prefixes", flags.server.share_prefixes,
               "keys find each other's prompts in the prefix cache, and can tell that they are there")
      ->group("Server");
  option("--max-num-queued-reqs,--max-waiting", flags.engine.options.max_waiting,
         "requests that may wait; one more gets 429 (4096)", "N");
  option("--max-num-queued-tokens", flags.engine.options.max_waiting_tokens,
         "tokens of their prompts and predictions, once somebody waits; 0 = any number (0)", "N");
  option("--request-timeout", flags.engine.options.request_timeout_s, "to the end of an answer; 0 = none (0)", "SECONDS");
  option("--queue-timeout", flags.engine.options.queue_timeout_s, "to an answer's first step; 0 = none (0)", "SECONDS");
  option("--state-dir", flags.server.state_directory, "adapters that clients load are there again after a restart", "DIR");
  option("--store-responses", flags.stored_responses,
         "keep responses of /v1/responses in --state-dir, up to so many bytes, at most 30 days; 0 = none (0)", "SIZE");
  option("--store-files", flags.stored_files,
         "keep files and answers of /v1/batches in --state-dir, up to so many bytes; 0 = none (1G)", "SIZE");
  option("--store-adapters", flags.sent_adapters,
         "take adapters that clients send, and keep them in --state-dir, up to so many bytes; 0 = none (0)", "SIZE");
  serve::CatalogueFlags& catalogue = flags.server.catalogue;
  option("--adapter-catalogue", catalogue.url,
         "the index of a fleet's adapters, which are fetched into --state-dir and follow it within seconds", "URL");
  option("--adapter-catalogue-token", catalogue.token, "is sent with each request for it and its files", "TOKEN");
  option("--adapter-catalogue-token-file", catalogue.token_file, "the file that holds it, read anew each time", "FILE");
  option("--adapter-catalogue-ca", catalogue.ca_file, "whose certificates to trust there, PEM (the system's)", "FILE");
  option("--adapter-cache", flags.fetched_adapters, "the most that fetched adapters take (10G)", "SIZE");
  app.add_flag(
         "--catalogue-writable", flags.server.writes_catalogue,
         "adapters that clients load and unload go into --adapter-root and its catalogue.json, for all servers that follow it")
      ->group("Server");
  app.add_flag("--lora-init-without-apply", flags.lora_without_apply,
               "--lora PATH, without a name, waits to be asked for too; as in llama.cpp")
      ->group("Server");
  option("--kv-events-config", flags.kv_events,
         "publish what enters and leaves the prefix cache over ZeroMQ: vLLM's JSON, {\"enable_kv_cache_events\": true} (none)",
         "JSON");
  add_answer_flags(app, flags.server);
  app.add_flag("--webui,--ui,!--no-webui,!--no-ui", flags.server.has_console, "the console, a page for people at / (on)")
      ->group("Server");
  option("--access-log", flags.access_log, "a line for each request: text, json, off (text)", "FORM");
  option("--shutdown-delay", flags.unready_s, "after SIGTERM /readyz says no and requests are served so long (0)", "SECONDS");
  option("--shutdown-timeout", flags.drain_s, "then answers in flight have so long (30)", "SECONDS");
  option("--config", flags.config,
         "a file with a line `flag = value` for each flag; the command line and CHORAL_FLAG go before it", "FILE");
  add_engine_flags(app, flags.engine);
}

// What `serve` with these flags would run with, and who said so.
Status show(CLI::App& app) {
  std::vector<Setting> settings;
  CHORAL_RETURN_IF_ERROR(fill_settings(app, &settings));
  size_t flag = 0, value = 0;
  for (auto& setting : settings) {
    if (setting.is_secret && setting.origin != kDefaultOrigin) setting.value = "(hidden)";
    flag = std::max(flag, setting.flag.size());
    value = std::max(value, std::min<size_t>(setting.value.size(), 40));
  }
  std::string text;
  for (const auto& setting : settings)
    text += fmt::format("{:<{}}  {:<{}}  {}\n", setting.flag, flag, terminal_line(setting.value), value,
                        terminal_line(setting.origin));
  return print_out(text);
}

}  // namespace

void add_serve(CLI::App& app, Command& command) {
  auto* sub = app.add_subcommand("serve", "an OpenAI-compatible server; `model` of a request names the base or an adapter");
  const auto flags = std::make_shared<ServeFlags>();
  add_serve_flags(*sub, *flags);
  sub->callback([sub, flags, &command] {
    command.run = [sub, flags] {
      CHORAL_RETURN_IF_ERROR(fill_settings(*sub));
      warn_of_unknown_variables(*sub);
      return run(std::move(*flags));
    };
    command.follow = [sub, flags] {
      CHORAL_RETURN_IF_ERROR(fill_settings(*sub));
      return follow(flags->engine);
    };
  });
}

void add_config(CLI::App& app, Command& command) {
  auto* sub = app.add_subcommand("config", "the settings of a server");
  auto* shown = sub->add_subcommand("show", "what `serve` with these flags would run with, and where each value comes from");
  const auto flags = std::make_shared<ServeFlags>();
  add_serve_flags(*shown, *flags);
  shown->callback([shown, flags, &command] { command.run = [shown, flags] { return show(*shown); }; });
}

}  // namespace choral::apps
