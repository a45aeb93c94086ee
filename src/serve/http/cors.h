// Which web pages of other sites a browser lets read this server's answers (https://fetch.spec.whatwg.org/#http-cors-protocol):
// those of the origins that --cors-origins names. A key travels in a header that the page itself sends; cookies, which a browser
// would add by itself, are never asked for. Immutable; thread-safe.
#pragma once

#include <string>
#include <vector>

#include "base/status.h"
#include "serve/http/message.h"

namespace choral::serve {

class Cors {
 public:
  Cors() = default;  // no page's
  // "https://app.example.com", with its port where it has one; "localhost": any page that this machine serves; "*": any.
  static Result<Cors> make(const std::vector<std::string>& origins);

  // A page of one of the origins sent it.
  bool allows(const HttpRequest& head) const;
  // Such a page's browser asks whether it may send a request.
  bool is_preflight(const HttpRequest& head) const;
  HttpResponse preflight_answer(const HttpRequest& head) const;  // without those that every answer has
  // Of every answer: lets such a page read it.
  void add_headers(const HttpRequest& head, Headers& headers) const;

 private:
  bool any_ = false, local_ = false;
  std::vector<std::string> origins_;  // in lower case
};

}  // namespace choral::serve
