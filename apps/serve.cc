// `choral serve`: an OpenAI-compatible server where `model` names the adapter.
#include <CLI/CLI.hpp>
#include <condition_variable>
#include <mutex>

#include "base/log.h"
#include "base/printable.h"
#include "command.h"
#include "engine_flags.h"
#include "interrupts.h"
#include "output_file.h"
#include "serve/server.h"
#include "settings.h"

namespace choral::apps {
namespace {

struct ServeFlags {
  EngineFlags engine;
  serve::ServerOptions server;
  serve::TlsOptions tls;
  std::string config;
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
};

void print_welcome(const serve::Server& server, const LLM& llm) {
  std::string url = "http://127.0.0.1:8000";
  for (const auto& address : server.addresses()) {
    say("choral: serving on {}\n", terminal_line(address));
    if (address.starts_with("http")) url = address;
  }
  const auto adapters = llm.adapters();
  const std::string model = adapters.empty() ? llm.info().name : adapters.front().name;
  say("choral: try\n"
      "  curl {0}/v1/models\n"
      "  curl {0}/v1/chat/completions -H 'Content-Type: application/json' \\\n"
      "    -d '{{\"model\": \"{1}\", \"messages\": [{{\"role\": \"user\", \"content\": \"Hello\"}}]}}'\n"
      "  python3 -c 'from openai import OpenAI; c = OpenAI(base_url=\"{0}/v1\", api_key=\"none\"); "
      "print(c.completions.create(model=\"{1}\", prompt=\"Once upon a time\").choices[0].text)'\n",
      terminal_line(url), terminal_line(model));
}

Status run(ServeFlags flags) {
  CHORAL_TRY(const auto interrupts, Interrupts::make());
  if (flags.tls.certificate_file.empty() != flags.tls.key_file.empty())
    return invalid_argument("--ssl-certfile and --ssl-keyfile belong together");
  if (!flags.tls.certificate_file.empty()) flags.server.http.tls = flags.tls;
  flags.server.adapter_root = flags.engine.options.adapter_root;
  std::unique_ptr<LLM> llm;  // outlives the server
  CHORAL_TRY(const auto server, serve::Server::start(std::move(flags.server)));
  CHORAL_TRY(llm, load_llm(flags.engine));
  server->attach(*llm);

  Ending ending;
  const Interrupts::Scope scope(*interrupts,
                                {.call = [&] { ending.signal(), ending.is_urgent() ? server->abort() : void(); }, .again = true});
  if (!flags.engine.quiet) print_welcome(*server, *llm);
  ending.wait();
  server->set_unready();
  if (flags.unready_s > 0) ending.wait_on(flags.unready_s);
  if (!flags.engine.quiet) say("choral: ending: answers in flight have {:.0f} s; a second signal cuts them off\n", flags.drain_s);
  server->drain(std::chrono::milliseconds(ending.is_urgent() ? 0 : static_cast<int64_t>(flags.drain_s * 1000)));
  return {};
}

void add_serve_flags(CLI::App& app, ServeFlags& flags) {
  add_model_flag(app, flags.engine);
  serve::HttpServerOptions& http = flags.server.http;
  const auto option = [&app](const char* names, auto& value, const char* what, const char* type) {
    app.add_option(names, value, what)->type_name(type)->group("Server");
  };
  option("--host", http.host, "address to listen on: this machine alone unless said otherwise (127.0.0.1)", "ADDRESS");
  option("--port", http.port, "port to listen on; 0 = a free one (8000)", "N");
  option("--uds", http.unix_path, "listen on this unix socket too", "PATH");
  option("--served-model-name,--alias", flags.server.base_names, "what requests call the base (the model's name)", "NAME");
  option("--ssl-certfile", flags.tls.certificate_file, "TLS: the certificate and its chain, PEM", "FILE");
  option("--ssl-keyfile", flags.tls.key_file, "TLS: its key, PEM", "FILE");
  option("--ssl-ca-certs", flags.tls.client_ca_file, "TLS: clients must show a certificate signed by one of these, PEM", "FILE");
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
    if (setting.is_secret && !setting.value.empty()) setting.value = "(hidden)";
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
      return run(std::move(*flags));
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
