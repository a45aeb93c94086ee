#include "kernels/ref/lora.h"

#include <cmath>

namespace choral::kernels::ref {

void lora_shrink(std::span<const LoRASlice> slices, MatrixView<const float> x, float factor, MatrixView<double> middle,
                 MatrixView<double> magnitude) {
  for (int64_t i = 0; i < x.rows; ++i) {
    int64_t column = 0;
    for (const LoRASlice& slice : slices) {
      for (int64_t j = 0; j < slice.a.rows; ++j, ++column) {
        double sum = 0, absolute = 0;
        for (int64_t k = 0; k < x.cols; ++k) {
          const double product = static_cast<double>(slice.a.row(j)[k]) * x.row(i)[k];
          sum += product;
          absolute += std::fabs(product);
        }
        const double scale = static_cast<double>(factor) * slice.scale;
        middle.row(i)[column] = scale * sum;
        magnitude.row(i)[column] = std::fabs(scale) * absolute;
      }
    }
  }
}

void lora_expand(std::span<const LoRATerm> terms, MatrixView<const float> base, MatrixView<double> y,
                 MatrixView<double> magnitude) {
  for (int64_t i = 0; i < base.rows; ++i) {
    for (int64_t c = 0; c < base.cols; ++c) {
      const double before = base.row(i)[c];
      double sum = before, absolute = std::fabs(before);
      for (const LoRATerm& term : terms) {
        const double f = term.output_factor.empty() ? 1.0 : term.output_factor[c];
        const double o = term.offset.empty() ? 0.0 : term.offset[c];
        sum += term.factor * ((f - 1) * before + o);
        absolute += std::fabs(term.factor) * ((std::fabs(f) + 1) * std::fabs(before) + std::fabs(o));
        int64_t rank_begin = 0;
        for (const LoRASlice& slice : term.slices) {
          const int64_t row = c - slice.out_begin;
          for (int64_t j = 0; j < slice.b.cols && row >= 0 && row < slice.b.rows; ++j) {
            const double product = f * slice.b.row(row)[j] * term.middle.row(i)[rank_begin + j];
            sum += product;
            absolute += std::fabs(product);
          }
          rank_begin += slice.a.rows;
        }
      }
      y.row(i)[c] = sum;
      magnitude.row(i)[c] = absolute;
    }
  }
}

void bgmv(MatrixView<const float> inputs, std::span<const float> stack, std::span<const int64_t> indices,
          MatrixView<double> result, MatrixView<double> magnitude) {
  for (int64_t i = 0; i < inputs.rows; ++i) {
    const int64_t index = indices[i];
    for (int64_t o = 0; o < result.cols; ++o) {
      double sum = 0, absolute = 0;
      for (int64_t k = 0; k < inputs.cols && index >= 0; ++k) {
        const double product = static_cast<double>(stack[(index * result.cols + o) * inputs.cols + k]) * inputs.row(i)[k];
        sum += product;
        absolute += std::fabs(product);
      }
      result.row(i)[o] = sum;
      magnitude.row(i)[o] = absolute;
    }
  }
}

}  // namespace choral::kernels::ref
