#include "tools/fleet_plan.h"

#include <gtest/gtest.h>

namespace choral::tools {
namespace {

// A machine whose steps cost 10 ms and one more for each row, and prompts a ms a token.
StepCosts simple_costs() {
  return {.decode = {{1, 0.011}, {11, 0.021}},
          .adapted = {{1, 0.012}, {11, 0.032}},
          .prefill = {{1, 0.011}, {101, 0.111}},
          .adapter_load_s = 0.05};
}
constexpr ReplicaLimits kRoomy{.kv_tokens = 1'000'000, .max_num_seqs = 32, .max_num_batched_tokens = 1000, .adapters = 1000};

TEST(FleetPlan, ALoneRequestTakesWhatItsStepsTake) {
  const FleetTraffic rare{.rate = 1e-5, .prompt_tokens = 51, .max_tokens = 20};
  const auto figures = simulate_fleet(simple_costs(), kRoomy, rare, FleetRouting::kByAdapter, 1);
  EXPECT_TRUE(figures.keeps_up);
  EXPECT_NEAR(figures.first_token.mean, 0.061, 1e-6);
  EXPECT_NEAR(figures.between_tokens.mean, 0.011, 1e-6);
  EXPECT_EQ(figures.hit_rate, 1);
}

TEST(FleetPlan, SharedTokensAreNotComputedAgain) {
  const FleetTraffic rare{.rate = 1e-5, .prompt_tokens = 51, .shared_tokens = 40, .max_tokens = 20};
  const auto figures = simulate_fleet(simple_costs(), kRoomy, rare, FleetRouting::kByAdapter, 1);
  EXPECT_NEAR(figures.first_token.mean, 0.021, 1e-6);
}

TEST(FleetPlan, AnAdapterThatIsMissingIsWaitedForAndCostsItsRows) {
  const FleetTraffic rare{.rate = 1e-5, .prompt_tokens = 51, .max_tokens = 20, .adapters = 2, .skew = AdapterSkew::kInTurn};
  auto limits = kRoomy;
  limits.adapters = 1;
  const auto cold = simulate_fleet(simple_costs(), limits, rare, FleetRouting::kByAdapter, 1);
  EXPECT_EQ(cold.hit_rate, 0);
  EXPECT_NEAR(cold.first_token.mean, 0.111, 1e-6);
  EXPECT_NEAR(cold.between_tokens.mean, 0.012, 1e-6);
  EXPECT_NEAR(cold.loads_per_s, 1e-5, 1e-6);
  limits.adapters = 2;
  EXPECT_EQ(simulate_fleet(simple_costs(), limits, rare, FleetRouting::kByAdapter, 1).hit_rate, 1);
}

// One at a time, of equal length: the mean wait of a queue with random arrivals (Pollaczek and Khinchine).
TEST(FleetPlan, WaitsAreThoseOfAQueue) {
  auto limits = kRoomy;
  limits.max_num_seqs = 1;
  constexpr double kService = 0.111, kLoad = 0.7;
  const FleetTraffic traffic{.rate = kLoad / kService, .prompt_tokens = 101, .max_tokens = 1, .seed = 3};
  const auto figures = simulate_fleet(simple_costs(), limits, traffic, FleetRouting::kByAdapter, 1);
  EXPECT_NEAR(figures.first_token.mean, kService * (1 + kLoad / (2 * (1 - kLoad))), 0.02);
  EXPECT_GT(figures.first_token.p99, 2 * figures.first_token.p50);
}

TEST(FleetPlan, MoreThanOneServerGivesTakesTwo) {
  FleetTraffic traffic{.prompt_tokens = 51, .max_tokens = 50};
  const double most = most_requests_per_s(simple_costs(), kRoomy, traffic);
  // Of each request 50 ms for its prompt, and 50 tokens' part of steps of 42 ms for 32 rows.
  EXPECT_NEAR(most, 1 / (0.05 + 50 * 0.042 / 32), 1e-6);
  traffic.rate = 0.8 * most;
  const auto alone = simulate_fleet(simple_costs(), kRoomy, traffic, FleetRouting::kByAdapter, 1);
  EXPECT_TRUE(alone.keeps_up);
  EXPECT_NEAR(alone.tokens_per_s, traffic.rate * 50, 0.05 * traffic.rate * 50);
  EXPECT_LT(alone.batch, 32);
  traffic.rate = 1.5 * most;
  EXPECT_FALSE(simulate_fleet(simple_costs(), kRoomy, traffic, FleetRouting::kByAdapter, 1).keeps_up);
  const auto two = simulate_fleet(simple_costs(), kRoomy, traffic, FleetRouting::kByAdapter, 2);
  EXPECT_TRUE(two.keeps_up);
  EXPECT_NEAR(two.tokens_per_s, traffic.rate * 50, 0.05 * traffic.rate * 50);
}

TEST(FleetPlan, KeysAndValuesLimitTheBatch) {
  auto limits = kRoomy;
  limits.kv_tokens = 4 * 101;
  FleetTraffic traffic{.prompt_tokens = 51, .max_tokens = 50};
  EXPECT_NEAR(most_requests_per_s(simple_costs(), limits, traffic), 1 / (0.05 + 50 * 0.014 / 4), 1e-6);
  traffic.rate = 0.9 * most_requests_per_s(simple_costs(), limits, traffic);
  const auto figures = simulate_fleet(simple_costs(), limits, traffic, FleetRouting::kByAdapter, 1);
  EXPECT_LE(figures.batch, 4);
  EXPECT_LE(figures.kv_tokens, 4 * 101);
}

TEST(FleetPlan, AHomeForEachAdapterKeepsItInMemory) {
  auto limits = kRoomy;
  limits.adapters = 40;
  auto costs = simple_costs();
  costs.adapter_load_s = 0.001;
  const FleetTraffic traffic{
      .rate = 6, .prompt_tokens = 11, .max_tokens = 10, .adapters = 100, .skew = AdapterSkew::kUniform, .seed = 1};
  const auto home = simulate_fleet(costs, limits, traffic, FleetRouting::kByAdapter, 3);
  const auto anywhere = simulate_fleet(costs, limits, traffic, FleetRouting::kRandom, 3);
  EXPECT_NEAR(anywhere.hit_rate, 0.4, 0.05) << "40 of 100 are there, whichever are asked for";
  EXPECT_GT(home.hit_rate, anywhere.hit_rate + 0.3);
  EXPECT_NEAR(anywhere.loads_per_s, traffic.rate * (1 - anywhere.hit_rate), 0.5);
}

TEST(FleetPlan, TheSameSeedGivesTheSameFigures) {
  const FleetTraffic traffic{.rate = 5, .adapters = 20, .seed = 9};
  const auto once = simulate_fleet(simple_costs(), kRoomy, traffic, FleetRouting::kRandom, 2);
  const auto again = simulate_fleet(simple_costs(), kRoomy, traffic, FleetRouting::kRandom, 2);
  EXPECT_EQ(once.first_token.mean, again.first_token.mean);
  EXPECT_EQ(once.tokens_per_s, again.tokens_per_s);
}

}  // namespace
}  // namespace choral::tools
