// libcurl, opened when something is first fetched or measured over HTTP: most runs need none, and the Python package does not
// carry it, with its two dozen libraries and the place where its own system keeps certificates. Thread-safe.
#pragma once

#include <curl/curl.h>

#include "base/status.h"

namespace choral::fetch {

struct CurlLibrary {
  // The one of this process, ready. An error says how to get it.
  static Result<const CurlLibrary*> open();
  static Result<CurlLibrary> load(const char* file);

  decltype(&curl_easy_init) easy_init;
  decltype(&curl_easy_cleanup) easy_cleanup;
  decltype(&curl_easy_setopt) easy_setopt;
  decltype(&curl_easy_getinfo) easy_getinfo;
  decltype(&curl_easy_perform) easy_perform;
  decltype(&curl_easy_header) easy_header;
  decltype(&curl_easy_strerror) easy_strerror;
  decltype(&curl_slist_append) slist_append;
  decltype(&curl_slist_free_all) slist_free_all;
  decltype(&curl_multi_init) multi_init;
  decltype(&curl_multi_cleanup) multi_cleanup;
  decltype(&curl_multi_setopt) multi_setopt;
  decltype(&curl_multi_add_handle) multi_add_handle;
  decltype(&curl_multi_remove_handle) multi_remove_handle;
  decltype(&curl_multi_perform) multi_perform;
  decltype(&curl_multi_poll) multi_poll;
  decltype(&curl_multi_wakeup) multi_wakeup;
  decltype(&curl_multi_info_read) multi_info_read;
  decltype(&curl_multi_strerror) multi_strerror;
};

}  // namespace choral::fetch
