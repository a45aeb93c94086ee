// The requests of a load, one after the other: who is asked and with which prompt. The same options give the same requests.
// Not thread-safe.
#pragma once

#include <random>
#include <string>
#include <vector>

#include "tools/load_generator.h"

namespace choral::tools {

struct LoadRequest {
  std::string model;
  std::string body;  // JSON
};

class RequestMaker {
 public:
  // `model`: the base, as the server calls it; "base" among the adapters stands for it.
  RequestMaker(const LoadOptions& options, std::string model);
  LoadRequest next();
  // Until the request after this one comes, with a rate: exponential, so that arrivals are a Poisson process.
  double next_gap_s();

 private:
  std::string words(int count);
  size_t choose();

  const LoadOptions& options_;
  std::vector<std::string> models_;
  std::mt19937_64 random_;
  std::discrete_distribution<size_t> zipf_;
  std::string shared_;
  int64_t made_ = 0;
};

}  // namespace choral::tools
