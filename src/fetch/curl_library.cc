#include "fetch/curl_library.h"

#include <dlfcn.h>

#include "base/opened_library.h"
#include "base/printable.h"

namespace choral::fetch {
namespace {

// libcurl calls its own copies of the libraries that this program has, too: a Python package brings OpenSSL with it.
// The sanitizers' runtimes refuse that.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr int kHow = RTLD_NOW | RTLD_LOCAL;
#else
constexpr int kHow = RTLD_NOW | RTLD_LOCAL | RTLD_DEEPBIND;
#endif

}  // namespace

Result<CurlLibrary> CurlLibrary::load(const char* file) {
  void* const library = dlopen(file, kHow);  // kept to the end
  if (library == nullptr) {
    return unavailable("HTTP needs libcurl, which is not here ({}); install it (Debian: apt-get install libcurl4)",
                       printable(dlerror()));
  }
  const OpenedLibrary opened{library, "libcurl", ": it is older than 7.85; install a newer one"};
  CurlLibrary curl{};
  CHORAL_RETURN_IF_ERROR(opened.find("curl_easy_init", curl.easy_init));
  CHORAL_RETURN_IF_ERROR(opened.find("curl_easy_cleanup", curl.easy_cleanup));
  CHORAL_RETURN_IF_ERROR(opened.find("curl_easy_setopt", curl.easy_setopt));
  CHORAL_RETURN_IF_ERROR(opened.find("curl_easy_getinfo", curl.easy_getinfo));
  CHORAL_RETURN_IF_ERROR(opened.find("curl_easy_perform", curl.easy_perform));
  CHORAL_RETURN_IF_ERROR(opened.find("curl_easy_header", curl.easy_header));
  CHORAL_RETURN_IF_ERROR(opened.find("curl_easy_strerror", curl.easy_strerror));
  CHORAL_RETURN_IF_ERROR(opened.find("curl_slist_append", curl.slist_append));
  CHORAL_RETURN_IF_ERROR(opened.find("curl_slist_free_all", curl.slist_free_all));
  CHORAL_RETURN_IF_ERROR(opened.find("curl_multi_init", curl.multi_init));
  CHORAL_RETURN_IF_ERROR(opened.find("curl_multi_cleanup", curl.multi_cleanup));
  CHORAL_RETURN_IF_ERROR(opened.find("curl_multi_setopt", curl.multi_setopt));
  CHORAL_RETURN_IF_ERROR(opened.find("curl_multi_add_handle", curl.multi_add_handle));
  CHORAL_RETURN_IF_ERROR(opened.find("curl_multi_remove_handle", curl.multi_remove_handle));
  CHORAL_RETURN_IF_ERROR(opened.find("curl_multi_perform", curl.multi_perform));
  CHORAL_RETURN_IF_ERROR(opened.find("curl_multi_poll", curl.multi_poll));
  CHORAL_RETURN_IF_ERROR(opened.find("curl_multi_wakeup", curl.multi_wakeup));
  CHORAL_RETURN_IF_ERROR(opened.find("curl_multi_info_read", curl.multi_info_read));
  CHORAL_RETURN_IF_ERROR(opened.find("curl_multi_strerror", curl.multi_strerror));
  decltype(&curl_global_init) global_init = nullptr;
  CHORAL_RETURN_IF_ERROR(opened.find("curl_global_init", global_init));
  if (global_init(CURL_GLOBAL_DEFAULT) != CURLE_OK) return internal_error("libcurl does not start");
  return curl;
}

Result<const CurlLibrary*> CurlLibrary::open() {
  static const Result<CurlLibrary> opened = load("libcurl.so.4");
  if (!opened.ok()) return opened.status();
  return &*opened;
}

}  // namespace choral::fetch
