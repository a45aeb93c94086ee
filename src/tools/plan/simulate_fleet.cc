#include <algorithm>
#include <cmath>
#include <deque>
#include <limits>
#include <list>
#include <random>
#include <span>
#include <unordered_map>

#include "tools/fleet_plan.h"
#include "tools/load/latencies.h"

namespace choral::tools {
namespace {

constexpr int kLeastRequests = 3000, kMostRequests = 30'000;
constexpr int kRequestsOfAnAdapter = 5;  // in the mean: what is rare counts too
constexpr double kWarmUp = 0.2;          // of the requests, which are not counted: memories are empty at first
constexpr double kMostLoad = 1.25;       // of the mean, until a home hands on
constexpr double kNever = std::numeric_limits<double>::infinity();

// Straight lines between what was measured, and on beyond it.
double at(const std::vector<StepCosts::Point>& points, double rows) {
  if (points.size() == 1) return points[0].seconds;
  size_t right = 1;
  while (right + 1 < points.size() && points[right].rows < rows) ++right;
  const auto &a = points[right - 1], &b = points[right];
  const double seconds = a.seconds + (b.seconds - a.seconds) * (rows - a.rows) / (b.rows - a.rows);
  return std::max(seconds, 0.0);
}

double decode_s(const StepCosts& costs, int rows, int adapters) {
  if (rows == 0) return 0;
  const double base = at(costs.decode, rows);
  if (costs.adapted.empty() || adapters == 0) return base;
  return base + std::max(at(costs.adapted, rows) - base, 0.0) * adapters / rows;
}

// A prompt's part beside rows that decode: the weights are read for these already.
double prompt_s(const StepCosts& costs, int tokens) { return std::max(at(costs.prefill, tokens) - at(costs.decode, 1), 0.0); }

struct Job {
  double arrival = 0;
  int adapter = 0;  // counted from 1; 0: the base
  bool counts = false;
  int prompt_left = 0, answer_left = 0;
  double last_token = 0;  // when; 0: none yet
};

// Adapters in memory, the least used of late leaves first; one is loaded at a time.
class AdapterPlaces {
 public:
  AdapterPlaces(int64_t places, double load_s) : places_(places), load_s_(load_s) {}

  // When it will be there. It is used from now on.
  double ready_at(int adapter, double now) {
    if (const auto found = places_of_.find(adapter); found != places_of_.end()) {
      order_.splice(order_.begin(), order_, found->second.place);
      return std::max(found->second.ready, now);
    }
    ++loads_;
    free_at_ = std::max(free_at_, now) + load_s_;
    order_.push_front(adapter);
    places_of_[adapter] = {order_.begin(), free_at_};
    if (std::ssize(order_) > std::max<int64_t>(places_, 1)) {
      places_of_.erase(order_.back());
      order_.pop_back();
    }
    return free_at_;
  }
  bool holds(int adapter) const { return places_of_.contains(adapter); }
  int64_t loads() const { return loads_; }

 private:
  struct Entry {
    std::list<int>::iterator place;
    double ready = 0;
  };
  const int64_t places_;
  const double load_s_;
  double free_at_ = 0;
  int64_t loads_ = 0;
  std::list<int> order_;
  std::unordered_map<int, Entry> places_of_;
};

class Replica {
 public:
  Replica(const StepCosts& costs, const ReplicaLimits& limits, const FleetTraffic& traffic)
      : costs_(costs), limits_(limits), traffic_(traffic), adapters_(limits.adapters, costs.adapter_load_s) {}

  // True: its adapter is in memory.
  bool arrive(Job job, double now) {
    const bool is_hit = job.adapter == 0 || adapters_.holds(job.adapter);
    const double ready = job.adapter == 0 ? now : adapters_.ready_at(job.adapter, now);
    waiting_.push_back({job, ready});
    if (!stepping_) begin_step(now);
    return is_hit;
  }
  size_t outstanding() const { return waiting_.size() + running_.size(); }
  double next_event() const { return next_; }

  // The step that ends now, or a load that somebody waited for.
  void turn(Latencies& first, Latencies& between) {
    const double now = next_;
    if (stepping_) end_step(now, first, between);
    begin_step(now);
  }

  // --- over its steps ---
  double batch_sum() const { return batch_sum_; }
  double kv_sum() const { return kv_sum_; }
  int64_t steps() const { return steps_; }
  int64_t tokens() const { return tokens_; }
  int64_t loads() const { return adapters_.loads(); }

 private:
  struct Waiting {
    Job job;
    double ready;
  };

  void admit(double now) {
    for (auto it = waiting_.begin(); it != waiting_.end();) {
      if (std::ssize(running_) >= limits_.max_num_seqs || kv_ + held_ > limits_.kv_tokens) return;
      if (it->ready > now) {
        ++it;
        continue;
      }
      kv_ += held_;
      running_.push_back(it->job);
      it = waiting_.erase(it);
    }
  }

  void begin_step(double now) {
    admit(now);
    stepping_ = !running_.empty();
    next_ = kNever;
    if (!stepping_) {
      for (const auto& waiting : waiting_) next_ = std::min(next_, std::max(waiting.ready, now));
      return;
    }
    int rows = 0;
    used_.clear();
    for (const auto& job : running_) {
      if (job.prompt_left > 0) continue;
      ++rows;
      if (job.adapter != 0) used_.push_back(job.adapter);
    }
    std::sort(used_.begin(), used_.end());
    const auto distinct = static_cast<int>(std::unique(used_.begin(), used_.end()) - used_.begin());
    int budget = std::max(limits_.max_num_batched_tokens - rows, 0), prompts = 0;
    for (auto& job : running_) {
      const int part = job.prompt_left > 0 ? std::min(job.prompt_left, budget) : 0;
      job.prompt_left -= part;
      budget -= part;
      prompts += part;
      // Rows that decode are those whose prompt was done before; a mark keeps those apart whose prompt ends in this step.
      if (part > 0 && job.prompt_left == 0) job.prompt_left = -1;
    }
    double seconds = decode_s(costs_, rows, distinct);
    if (prompts > 0) seconds = rows > 0 ? seconds + prompt_s(costs_, prompts) : at(costs_.prefill, prompts);
    next_ = now + seconds;
    batch_sum_ += rows;
    kv_sum_ += static_cast<double>(kv_);
    ++steps_;
  }

  void end_step(double now, Latencies& first, Latencies& between) {
    for (auto it = running_.begin(); it != running_.end();) {
      Job& job = *it;
      if (job.prompt_left > 0) {
        ++it;
        continue;
      }
      job.prompt_left = 0;
      ++tokens_;
      if (job.counts) (job.last_token == 0 ? first : between).add(now - (job.last_token == 0 ? job.arrival : job.last_token));
      job.last_token = now;
      if (--job.answer_left > 0) {
        ++it;
        continue;
      }
      kv_ -= held_;
      it = running_.erase(it);
    }
  }

  const StepCosts& costs_;
  const ReplicaLimits& limits_;
  const FleetTraffic& traffic_;
  AdapterPlaces adapters_;
  std::deque<Waiting> waiting_;
  std::vector<Job> running_;
  std::vector<int> used_;
  const int64_t held_ = int64_t{traffic_.prompt_tokens} + traffic_.max_tokens;  // by each, from its start to its end
  int64_t kv_ = 0, steps_ = 0, tokens_ = 0;
  double batch_sum_ = 0, kv_sum_ = 0;
  bool stepping_ = false;
  double next_ = kNever;
};

// Which server gets a request.
class Router {
 public:
  Router(FleetRouting routing, uint64_t seed) : routing_(routing), random_(seed + 1) {}

  size_t choose(int adapter, std::span<const Replica> replicas) {
    const size_t n = replicas.size();
    if (routing_ == FleetRouting::kRandom) return random_() % n;
    size_t all = 0;
    for (const auto& replica : replicas) all += replica.outstanding();
    const double most = kMostLoad * static_cast<double>(all + 1) / static_cast<double>(n);
    const size_t home = adapter == 0 ? next_++ : static_cast<size_t>(adapter);
    for (size_t i = 0; i < n; ++i) {
      const size_t chosen = (home + i) % n;
      if (static_cast<double>(replicas[chosen].outstanding() + 1) <= std::ceil(most)) return chosen;
    }
    return home % n;
  }

 private:
  const FleetRouting routing_;
  std::mt19937_64 random_;
  size_t next_ = 0;
};

class Traffic {
 public:
  explicit Traffic(const FleetTraffic& traffic) : traffic_(traffic), random_(traffic.seed), gap_(traffic.rate) {
    std::vector<double> weights;
    for (int i = 0; i < traffic.adapters; ++i) weights.push_back(traffic.skew == AdapterSkew::kZipf ? 1.0 / (i + 1) : 1.0);
    adapter_ = {weights.begin(), weights.end()};
  }

  Job next() {
    now_ += gap_(random_);
    Job job{.arrival = now_,
            .prompt_left = std::max(traffic_.prompt_tokens - traffic_.shared_tokens, 1),
            .answer_left = traffic_.max_tokens};
    if (traffic_.adapters > 0)
      job.adapter = 1 + (traffic_.skew == AdapterSkew::kInTurn ? made_ % traffic_.adapters : adapter_(random_));
    ++made_;
    return job;
  }

 private:
  const FleetTraffic& traffic_;
  std::mt19937_64 random_;
  std::exponential_distribution<double> gap_;
  std::discrete_distribution<int> adapter_;
  double now_ = 0;
  int made_ = 0;
};

}  // namespace

double most_requests_per_s(const StepCosts& costs, const ReplicaLimits& limits, const FleetTraffic& traffic) {
  const int64_t by_memory = limits.kv_tokens / (int64_t{traffic.prompt_tokens} + traffic.max_tokens);
  const auto batch = static_cast<int>(std::clamp<int64_t>(by_memory, 1, limits.max_num_seqs));
  const int distinct = std::min(traffic.adapters, batch);
  const double prompt = prompt_s(costs, std::max(traffic.prompt_tokens - traffic.shared_tokens, 1));
  return 1 / (prompt + traffic.max_tokens * decode_s(costs, batch, distinct) / batch);
}

FleetFigures simulate_fleet(const StepCosts& costs, const ReplicaLimits& limits, const FleetTraffic& traffic,
                            FleetRouting routing, int replicas) {
  const int requests = std::clamp(kRequestsOfAnAdapter * traffic.adapters, kLeastRequests, kMostRequests);
  const auto most_outstanding = static_cast<size_t>(replicas) * static_cast<size_t>(limits.max_num_seqs) * 4 + 100;
  std::vector<Replica> fleet(static_cast<size_t>(replicas), Replica(costs, limits, traffic));
  Router router(routing, traffic.seed);
  Traffic source(traffic);
  Latencies first, between;
  int sent = 0, counted = 0, hits = 0;
  int64_t loads_before = 0, tokens_before = 0;
  double counted_from = 0, now = 0;
  const auto sum = [&fleet](auto value) {
    auto total = value(fleet[0]);
    for (size_t i = 1; i < fleet.size(); ++i) total += value(fleet[i]);
    return total;
  };
  FleetFigures figures;
  for (Job job = source.next(); sent < requests;) {
    auto* next = &fleet[0];
    for (auto& replica : fleet) next = replica.next_event() < next->next_event() ? &replica : next;
    if (next->next_event() <= job.arrival) {
      next->turn(first, between);
      continue;
    }
    now = job.arrival;
    job.counts = sent >= static_cast<int>(kWarmUp * requests);
    if (job.counts && counted++ == 0) {
      counted_from = now;
      loads_before = sum([](const Replica& r) { return r.loads(); });
      tokens_before = sum([](const Replica& r) { return r.tokens(); });
    }
    const bool is_hit = fleet[router.choose(job.adapter, fleet)].arrive(job, now);
    hits += job.counts && is_hit ? 1 : 0;
    if (sum([](const Replica& r) { return r.outstanding(); }) > most_outstanding) return figures;
    ++sent;
    job = source.next();
  }
  const double seconds = now - counted_from;
  figures.tokens_per_s = static_cast<double>(sum([](const Replica& r) { return r.tokens(); }) - tokens_before) / seconds;
  figures.loads_per_s = static_cast<double>(sum([](const Replica& r) { return r.loads(); }) - loads_before) / seconds;
  const auto steps = std::max<double>(static_cast<double>(sum([](const Replica& r) { return r.steps(); })), 1);
  figures.batch = sum([](const Replica& r) { return r.batch_sum(); }) / steps;
  figures.kv_tokens = sum([](const Replica& r) { return r.kv_sum(); }) / steps;
  figures.first_token = first.summary();
  figures.between_tokens = between.summary();
  figures.hit_rate = static_cast<double>(hits) / counted;
  // A queue that only grows leaves more behind than it gives.
  constexpr double kKept = 0.95;
  figures.keeps_up = figures.tokens_per_s >= kKept * traffic.rate * traffic.max_tokens;
  return figures;
}

}  // namespace choral::tools
