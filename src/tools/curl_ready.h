// libcurl wants to be made ready once, before threads use it: for the hub's downloads and the load generator.
#pragma once

#include <curl/curl.h>

namespace choral::tools {

inline bool curl_is_ready() {
  static const bool ready = curl_global_init(CURL_GLOBAL_DEFAULT) == CURLE_OK;
  return ready;
}

}  // namespace choral::tools
