// What every user of PCRE2 needs: its objects with their owners, its errors in words. For .cc files of folders that link it.
#pragma once

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <memory>
#include <string>

namespace choral {

struct Pcre2Free {
  void operator()(pcre2_match_data* p) const { pcre2_match_data_free(p); }
  void operator()(pcre2_match_context* p) const { pcre2_match_context_free(p); }
  void operator()(pcre2_compile_context* p) const { pcre2_compile_context_free(p); }
  void operator()(pcre2_code* p) const { pcre2_code_free(p); }
};
template <class T>
using Pcre2Ptr = std::unique_ptr<T, Pcre2Free>;

inline std::string pcre2_error_text(int code) {
  unsigned char buffer[256];
  const int n = pcre2_get_error_message(code, buffer, sizeof buffer);
  return n > 0 ? std::string(reinterpret_cast<char*>(buffer), n) : "error " + std::to_string(code);
}

}  // namespace choral
