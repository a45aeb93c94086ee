// How many servers a traffic needs: their steps, at the times that steps were measured to take, over requests that come as
// `choral load` sends them. Steps are planned as the scheduler plans them: those that decode first, then prompts in the order of
// arrival as far as a step's tokens go; a request waits for a place, for keys and values, and for its adapter. Nothing but steps
// takes time: not HTTP, not a router. Pure; the same seed gives the same figures.
#pragma once

#include <cstdint>
#include <vector>

#include "tools/load_generator.h"

namespace choral::tools {

// Of one machine.
struct StepCosts {
  struct Point {
    int rows = 0;
    double seconds = 0;
  };
  std::vector<Point> decode;   // so many sequences make a token each; rows rise
  std::vector<Point> adapted;  // the same, each with an adapter of its own; empty: there are no adapters
  std::vector<Point> prefill;  // a prompt of so many tokens, alone in its step; with an adapter where there are any
  double adapter_load_s = 0;
};

struct ReplicaLimits {
  int64_t kv_tokens = 0;  // that have room
  int max_num_seqs = 64;
  int max_num_batched_tokens = 1024;
  int64_t adapters = 0;  // that have room
};

struct FleetTraffic {
  double rate = 1;  // requests a second, at random times
  int prompt_tokens = 64;
  int shared_tokens = 0;  // of them, computed once
  int max_tokens = 64;
  int adapters = 0;  // that requests name; 0: the base alone
  AdapterSkew skew = AdapterSkew::kZipf;
  uint64_t seed = 0;
};

enum class FleetRouting {
  kByAdapter,  // each adapter has its home, and a busy home hands on: what routers that hash with bounded load do
  kRandom,
};

struct FleetFigures {
  bool keeps_up = false;  // the queues do not grow without end; nothing else is said where they do
  double tokens_per_s = 0;
  double batch = 0;      // answers that decode together, in the mean over steps
  double kv_tokens = 0;  // in use in one server, in the mean
  LatencySummary first_token, between_tokens;
  double hit_rate = 1;  // of requests that found their adapter in memory
  double loads_per_s = 0;
};

// What one server gives at most, by arithmetic: of each request its own prompt's time and its part of the steps of a full batch.
double most_requests_per_s(const StepCosts& costs, const ReplicaLimits& limits, const FleetTraffic& traffic);

FleetFigures simulate_fleet(const StepCosts& costs, const ReplicaLimits& limits, const FleetTraffic& traffic,
                            FleetRouting routing, int replicas);

}  // namespace choral::tools
