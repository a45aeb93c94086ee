// The server: listens at once, answers 503 while the model is loaded, then serves it until it is told to end. Its life in one
// line: loading -> ready -> unready (still serving) -> draining -> ended. Thread-safe: every method from any thread but the
// server's own.
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "choral/llm.h"
#include "serve/http/server.h"
#include "serve/kv_events/kv_event_settings.h"

namespace choral::serve {

class BatchRunner;
class KvEventPublisher;
class Service;
class WatchedFiles;

enum class AccessLog { kOff, kText, kJson };

// What a key, or an adapter, may have at a time; 0: any number.
struct FairShare {
  int requests = 0;
  double tokens_per_s = 0;
};

// A catalogue's index over HTTP.
struct CatalogueFlags {
  std::string url;         // empty: none
  std::string token;       // that is sent with each request
  std::string token_file;  // or the file that holds it
  std::string ca_file;     // whom to trust; empty: as the system says
  int64_t most_bytes = 0;  // of what is fetched and kept
};

struct ServerOptions {
  HttpServerOptions http;
  std::vector<std::string> base_names;    // that requests call the base by; empty: the model's own
  std::string adapter_root;               // to which adapters that clients load are bound
  bool follows_catalogue = false;         // the adapter root's, where there is one; the engine has places() then
  bool writes_catalogue = false;          // adapters that clients load and unload go into it
  CatalogueFlags catalogue;               // or one over HTTP
  std::string state_directory;            // adapters that clients load survive a restart in it; empty: they do not
  int64_t stored_response_bytes = 0;      // of /v1/responses, kept there; 0: none are
  int64_t stored_file_bytes = 0;          // of /v1/files and /v1/batches, kept there; 0: none are
  int64_t sent_adapter_bytes = 0;         // of /v1/adapter_uploads, kept there; 0: none are taken
  std::vector<AdapterUse> base_adapters;  // of requests that leave it open who answers, until POST /lora-adapters says otherwise
  std::vector<std::string> api_keys;      // who may ask; none, and no file: everybody
  std::string api_key_file;
  std::vector<std::string> allowed_hosts;  // names that requests may use (http/allowed_hosts.h)
  std::vector<std::string> cors_origins;   // sites whose pages may read its answers (http/cors.h)
  std::vector<std::string> admin_keys;     // who may change adapters; none: whoever is on this machine
  FairShare key_share, adapter_share;
  bool share_prefixes = false;   // keys find each other's prompts in the prefix cache
  std::string score_by;          // vectors, or yes-no: how texts are compared (ranking/pair_scores.h); empty: vectors
  bool has_console = true;       // the page at `/`
  bool strict_fields = false;    // a body's field that is not known is an error
  std::string tool_call_parser;  // how the model writes tool calls; empty: as its chat template says
  std::string reasoning_parser;  // how it marks what it thinks, "none": not at all; empty: as its chat template says
  AccessLog access_log = AccessLog::kText;
  KvEventSettings kv_events = {};  // of the prefix cache, for routers
};

class Server {
 public:
  static Result<std::unique_ptr<Server>> start(ServerOptions options);
  ~Server();

  // For the options of the engine: it counts adapters' generations so that no number is given twice, by later servers neither.
  std::shared_ptr<AdapterGenerations> generations() const;
  // Likewise: where a catalogue says that adapters lie. Null: none is followed.
  std::shared_ptr<const AdapterPlaces> places() const;
  // Requests reach the engine, which was loaded with these options, from now on. It must outlive the server.
  Status attach(LLM& llm, const EngineOptions& options);
  std::vector<std::string> addresses() const;

  // The files of keys and of TLS are read again, which happens too when they change (watched_files.h). New keys hold for
  // requests, and a new certificate for connections, that come from now on; an error leaves what was read before. What came of it
  // is said on stderr.
  void reload_files();
  // GET /readyz says no from now on; requests are served on.
  void set_unready();
  // New requests are refused; returns when every answer has ended, those that take longer than `limit` with an error.
  void drain(std::chrono::milliseconds limit);
  // The limit of a drain() in progress is over.
  void abort();

 private:
  Server();
  void watch_files(const ServerOptions& options);

  std::unique_ptr<Service> service_;
  std::unique_ptr<BatchRunner> batches_;  // from attach() on, where any are kept
  std::unique_ptr<HttpServer> http_;
  std::unique_ptr<KvEventPublisher> kv_events_;  // where they are wanted
  std::unique_ptr<WatchedFiles> files_;
  struct Waiting;
  std::unique_ptr<Waiting> waiting_;
};

}  // namespace choral::serve
