// How the program samples where neither a request nor the model's files say: the command line, chat and server alike.
#pragma once

#include "choral/llm.h"

namespace choral::serve {

// As the model's makers say. What they leave open is llama.cpp's choice for a GGUF file (temperature 0.8, the 40 likeliest, top_p
// 0.95, min_p 0.05), and OpenAI's for a folder (temperature 1 and nothing cut).
SamplingParams usual_sampling(const LLM& llm);

}  // namespace choral::serve
