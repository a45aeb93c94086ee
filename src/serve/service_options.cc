#include "serve/service_options.h"

namespace choral::serve {
namespace {

bool is_loopback(const HttpServerOptions& http) {
  return http.host.empty() || http.host == "localhost" || http.host == "::1" || http.host.starts_with("127.");
}

RateLimit rate_limit(const FairShare& share) { return {.max_in_flight = share.requests, .tokens_per_s = share.tokens_per_s}; }

// Empty: nobody chose.
Result<std::optional<ScoreBy>> score_by_named(std::string_view name) {
  using Choice = std::optional<ScoreBy>;
  if (name.empty()) return Choice();
  if (name == "vectors") return Choice(ScoreBy::kVectors);
  if (name == "yes-no") return Choice(ScoreBy::kYesNo);
  if (name == "head") return Choice(ScoreBy::kHead);
  return invalid_argument("--score-by {}: choose vectors, yes-no or head", name);
}

}  // namespace

Result<ServiceOptions> service_options(const ServerOptions& options) {
  ServiceOptions service{.base_names = options.base_names,
                         .adapter_root = options.adapter_root,
                         .follows_catalogue = options.follows_catalogue,
                         .writes_catalogue = options.writes_catalogue,
                         .catalogue_index = {.url = options.catalogue.url,
                                             .token = options.catalogue.token,
                                             .token_file = options.catalogue.token_file,
                                             .ca_file = options.catalogue.ca_file,
                                             .most_bytes = options.catalogue.most_bytes},
                         .state_directory = options.state_directory,
                         .stored_response_bytes = options.stored_response_bytes,
                         .stored_file_bytes = options.stored_file_bytes,
                         .sent_adapter_bytes = options.sent_adapter_bytes,
                         .base_adapters = options.base_adapters,
                         .api_key_file = options.api_key_file,
                         .api_keys = options.api_keys,
                         .admin_keys = options.admin_keys,
                         .key_limit = rate_limit(options.key_share),
                         .adapter_limit = rate_limit(options.adapter_share),
                         .is_loopback = is_loopback(options.http),
                         .has_proxies = !options.http.trusted_proxies.empty(),
                         .shares_prefixes = options.share_prefixes,
                         .has_console = options.has_console,
                         .strict_fields = options.strict_fields};
  CHORAL_TRY(service.allowed_hosts, AllowedHosts::make(options.allowed_hosts, service.is_loopback));
  CHORAL_TRY(service.score_by, score_by_named(options.score_by));
  CHORAL_TRY(service.cors, Cors::make(options.cors_origins));
  if (!options.tool_call_parser.empty()) {
    CHORAL_TRY(service.tool_format, tool_format_named(options.tool_call_parser));
  }
  if (!options.reasoning_parser.empty()) {
    CHORAL_TRY(service.thoughts, thought_marks_named(options.reasoning_parser));
  }
  return service;
}

}  // namespace choral::serve
