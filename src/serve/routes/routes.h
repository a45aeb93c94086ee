// The endpoints, one function each. They run on an I/O thread: what takes time goes through Service to a reader's thread.
// docs/serving.md lists them for users.
#pragma once

#include <string_view>

#include "serve/service/service.h"

namespace choral::serve {

// --- generation_routes.cc ---
void completions(Service& service, const Exchange& exchange);
void chat_completions(Service& service, const Exchange& exchange);
void embeddings(Service& service, const Exchange& exchange);
void responses(Service& service, const Exchange& exchange);
void messages(Service& service, const Exchange& exchange);

// --- response_routes.cc ---  `path`: what follows /v1/responses/
void get_response(Service& service, const Exchange& exchange, std::string_view path);
void post_response(Service& service, const Exchange& exchange, std::string_view path);
void delete_response(Service& service, const Exchange& exchange, std::string_view path);

// --- file_routes.cc ---  `path`: what follows /v1/files/
void upload_file(Service& service, const Exchange& exchange);
void list_files(Service& service, const Exchange& exchange);
void get_file(Service& service, const Exchange& exchange, std::string_view path);
void delete_file(Service& service, const Exchange& exchange, std::string_view path);

// --- batch_routes.cc ---  `path`: what follows /v1/batches/
void create_batch(Service& service, const Exchange& exchange);
void list_batches(Service& service, const Exchange& exchange);
void get_batch(Service& service, const Exchange& exchange, std::string_view path);
void cancel_batch(Service& service, const Exchange& exchange, std::string_view path);

// --- native_routes.cc: llama.cpp's ---
void native_completion(Service& service, const Exchange& exchange);
void infill(Service& service, const Exchange& exchange);
void native_embeddings(Service& service, const Exchange& exchange);

// --- ollama_routes.cc ---
void ollama_chat(Service& service, const Exchange& exchange);
void ollama_generate(Service& service, const Exchange& exchange);
void ollama_embed(Service& service, const Exchange& exchange);
void ollama_tags(Service& service, const Exchange& exchange);
void ollama_ps(Service& service, const Exchange& exchange);
void ollama_show(Service& service, const Exchange& exchange);

// --- ranking_routes.cc ---
void rerank(Service& service, const Exchange& exchange);
void score(Service& service, const Exchange& exchange);
void classify(Service& service, const Exchange& exchange);
void pooling(Service& service, const Exchange& exchange);

// --- server_routes.cc ---
void show_props(Service& service, const Exchange& exchange);
void show_slots(Service& service, const Exchange& exchange);
void show_server_info(Service& service, const Exchange& exchange);
void show_load(Service& service, const Exchange& exchange);

// --- model_routes.cc ---
void list_models(Service& service, const Exchange& exchange);
void get_model(Service& service, const Exchange& exchange, std::string_view id);
void tokenize(Service& service, const Exchange& exchange);
void detokenize(Service& service, const Exchange& exchange);
void apply_template(Service& service, const Exchange& exchange);
void count_message_tokens(Service& service, const Exchange& exchange);

// --- adapter_routes.cc ---
void list_adapters(Service& service, const Exchange& exchange);
void get_adapter(Service& service, const Exchange& exchange, std::string_view path);  // what follows /v1/lora_adapters/
void load_adapter(Service& service, const Exchange& exchange);
void unload_adapter(Service& service, const Exchange& exchange);
void pin_adapter(Service& service, const Exchange& exchange);
void unpin_adapter(Service& service, const Exchange& exchange);
void list_adapter_scales(Service& service, const Exchange& exchange);  // llama.cpp's two
void set_adapter_scales(Service& service, const Exchange& exchange);

// --- upload_routes.cc ---  `path`: what follows /v1/adapter_uploads/
void begin_upload(Service& service, const Exchange& exchange);
void load_adapter_form(Service& service, const Exchange& exchange);  // /v1/load_lora_adapter with the files in its body
void put_upload(Service& service, const Exchange& exchange, std::string_view path);
void load_upload(Service& service, const Exchange& exchange, std::string_view path);
void drop_upload(Service& service, const Exchange& exchange, std::string_view path);

// --- rollout_routes.cc: of trainers that send adapters while answers are made ---
void pause_engine(Service& service, const Exchange& exchange);
void resume_engine(Service& service, const Exchange& exchange);
void show_paused(Service& service, const Exchange& exchange);
void show_world_size(Service& service, const Exchange& exchange);
void sglang_load_adapter(Service& service, const Exchange& exchange);  // SGLang's two
void sglang_unload_adapter(Service& service, const Exchange& exchange);

// --- console_routes.cc ---
void console_page(Service& service, const Exchange& exchange);
void console_part(Service& service, const Exchange& exchange, std::string_view name);
void show_engine(Service& service, const Exchange& exchange);

// --- health_routes.cc ---
void health(Service& service, const Exchange& exchange);  // proves that the engine's loop turns
void readyz(Service& service, const Exchange& exchange);
void show_version(Service& service, const Exchange& exchange);
void metrics(Service& service, const Exchange& exchange);

}  // namespace choral::serve
