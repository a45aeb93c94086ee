// What of a request had no effect, said in the head of its answer, whatever that is: a header X-Choral-Warnings for each.
// Thread-safe as the exchange it stands for.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "serve/http/exchange.h"

namespace choral::serve {

// `warnings`: in ASCII, a line each. The exchange itself where there are none.
std::shared_ptr<HttpExchange> warned(std::shared_ptr<HttpExchange> exchange, std::vector<std::string> warnings);

}  // namespace choral::serve
