// Products of one call: each has the bits that it has alone, whatever stands beside it, and those of a kind are one launch.
#include "test_weight.h"

namespace choral_cuda {
namespace {

// One product of a call and what it has to be.
struct TestProduct {
  TestWeight weight;
  TestMatrix x, y, alone;

  TestProduct(const TestWeight& form, int64_t rows, int64_t cols, int64_t x_rows, uint32_t seed, int64_t gap = 4)
      : weight(form), x(x_rows, cols, gap), y(x_rows, rows, gap), alone(x_rows, rows, gap) {
    if (weight.has_fixed_input) {
      weight.input_scale *= 1.0f + 0.125f * static_cast<float>(seed % 5);
      weight.input_offset += static_cast<int32_t>(seed % 7);
    }
    weight.make(rows, cols, seed);
    x.fill(seed + 1);
    y.fill(seed + 2);
    alone = y;
  }
};

choral_matmul_args args_of(TestProduct& product, TestMatrix& y, const Shared<float>* bias = nullptr, bool accumulate = false) {
  return {.x = product.x.view(),
          .y = y.view(),
          .bias = bias == nullptr ? choral_vector{} : vector_of(*bias),
          .accumulate = accumulate};
}

void run_grouped(const std::vector<GroupedProduct>& products, int sm_count, bool has_wgmma = false) {
  TestLaunch launch(grouped_matmul_scratch_bytes(products), sm_count);
  Launch queue = launch.get();
  queue.has_wgmma = has_wgmma;
  ASSERT_EQ(done(grouped_matmul(queue, products)), cudaSuccess);
}

void run_alone(const GroupedProduct& product, int sm_count) {
  TestLaunch launch(matmul_scratch_bytes(*product.weight, product.args.x.rows), sm_count);
  ASSERT_EQ(done(matmul(launch.get(), *product.weight, product.args)), cudaSuccess);
}

void expect_same(const TestProduct& product) {
  for (int64_t r = 0; r < product.x.rows(); ++r) {
    EXPECT_TRUE(same_bits(product.y.row(r), product.alone.row(r))) << product.weight.name << ", row " << r;
  }
  EXPECT_TRUE(product.y.gaps_are_whole());
}

class GroupedMatmul : public ::testing::TestWithParam<TestWeight> {};

// Experts with few and with many rows: every kernel, with sections in blocks of their own and without, on wgmma and without.
TEST_P(GroupedMatmul, HasTheBitsOfEachProductAlone) {
  for (const auto& [sm_count, has_wgmma] : {std::pair{1000, false}, {1, false}, {1, device_has_wgmma()}}) {
    std::vector<TestProduct> products;
    for (const int64_t x_rows : {3, 9, 20, 40, 83, 1, 27, 50, 70, 16}) {
      products.emplace_back(GetParam(), 25, 256, x_rows, static_cast<uint32_t>(products.size() * 10 + 1));
    }
    std::vector<GroupedProduct> group;
    for (TestProduct& product : products) {
      group.push_back({&product.weight.packed, args_of(product, product.y)});
      run_alone({&product.weight.packed, args_of(product, product.alone)}, 2);
    }
    run_grouped(group, sm_count, has_wgmma);
    for (const TestProduct& product : products) expect_same(product);
  }
}

INSTANTIATE_TEST_SUITE_P(Forms, GroupedMatmul, ::testing::ValuesIn(every_form()), [](const auto& info) {
  std::string name = info.param.name;
  for (char& c : name) c = std::isalnum(static_cast<unsigned char>(c)) ? c : '_';
  return name;
});

// Formats, shapes and strides of all kinds in one call, with and without a bias and what was there; one has no rows.
TEST(GroupedMatmulKinds, AreMultipliedEachAsItIs) {
  const auto forms = every_form();
  std::vector<TestProduct> products;
  std::vector<Shared<float>> biases;
  for (size_t i = 0; i < 24; ++i) {
    const auto n = static_cast<int64_t>(i);
    products.emplace_back(forms[i * 7 % forms.size()], i % 4 == 0 ? 40 : 16, i % 3 == 0 ? 256 : 512, i == 7 ? 0 : 1 + n % 5,
                          static_cast<uint32_t>(i), i % 2 == 0 ? 4 : 9);
    biases.push_back(random_floats(products.back().y.cols(), static_cast<uint32_t>(i)));
  }
  std::vector<GroupedProduct> group;
  for (size_t i = 0; i < products.size(); ++i) {
    TestProduct& product = products[i];
    const Shared<float>* bias = i % 3 == 1 ? &biases[i] : nullptr;
    group.push_back({&product.weight.packed, args_of(product, product.y, bias, i % 5 == 0)});
    if (product.x.rows() > 0) run_alone({&product.weight.packed, args_of(product, product.alone, bias, i % 5 == 0)}, 4);
  }
  run_grouped(group, 4);
  for (const TestProduct& product : products) expect_same(product);
}

// Of one matrix's form: what differs is each product's own.
TEST(GroupedMatmulKinds, KeepTheirBiasAndWhatWasThere) {
  std::vector<TestProduct> products;
  for (uint32_t i = 0; i < 6; ++i) products.emplace_back(every_form()[1], 16, 128, 2, i);
  const auto bias = random_floats(16, 1), other = random_floats(16, 2);
  const Shared<float>* biases[] = {&bias, nullptr, &other, &bias, nullptr, &other};
  std::vector<GroupedProduct> group;
  for (size_t i = 0; i < products.size(); ++i) {
    TestProduct& product = products[i];
    group.push_back({&product.weight.packed, args_of(product, product.y, biases[i], i >= 3)});
    run_alone({&product.weight.packed, args_of(product, product.alone, biases[i], i >= 3)}, 4);
  }
  run_grouped(group, 4);
  for (const TestProduct& product : products) expect_same(product);
}

// More products than a launch takes, and more rows than are prepared at a time.
TEST(GroupedMatmulLaunches, TakeManyProductsAndManyRows) {
  const TestWeight form = every_form()[1];
  std::vector<TestProduct> products;
  for (int i = 0; i < 2 * 128 + 3; ++i) products.emplace_back(form, 16, 64, 1, static_cast<uint32_t>(i));
  for (const int64_t rows : {100, 4096 + 150, 90}) products.emplace_back(form, 16, 64, rows, static_cast<uint32_t>(rows));
  std::vector<GroupedProduct> group;
  for (TestProduct& product : products) {
    group.push_back({&product.weight.packed, args_of(product, product.y)});
    run_alone({&product.weight.packed, args_of(product, product.alone)}, 4);
  }
  run_grouped(group, 4);
  for (const TestProduct& product : products) expect_same(product);
}

// x made ready for all, and all multiplied.
TEST(GroupedMatmulLaunches, AreTwoForExpertsOfFewRows) {
  if (launches_so_far() < 0) GTEST_SKIP() << "launches are counted in emulation";
  std::vector<TestProduct> products;
  for (int i = 0; i < 100; ++i) products.emplace_back(every_form()[1], 40, 128, 1 + i % 8, static_cast<uint32_t>(i));
  std::vector<GroupedProduct> group;
  for (TestProduct& product : products) group.push_back({&product.weight.packed, args_of(product, product.y)});
  const int64_t before = launches_so_far();
  run_grouped(group, 132);
  EXPECT_EQ(launches_so_far() - before, 2);
}

// What is left of more rows than are prepared at a time may be divided by sections, which wants more than those rows.
TEST(MatmulScratch, IsEnoughForEachSlab) {
  TestWeight w = every_form()[1];
  w.make(640, 64, 1);
  EXPECT_GE(matmul_scratch_bytes(w.packed, 2048 + 200), matmul_scratch_bytes(w.packed, 200));
}

}  // namespace
}  // namespace choral_cuda
