/* One answer in C, printed as it comes; with an adapter if its folder is named. C99, and no library for JSON: what goes in is
 * written by hand, what comes out for every token is a struct. */
#include <choral/choral.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int fail(const char* doing, int32_t code, char* error) {
  fprintf(stderr, "%s: %s: %s\n", doing, choral_code_name(code), error != NULL ? error : "no memory for the message");
  choral_free(error);
  return 1;
}

/* {BEFORE"text"AFTER} as JSON; the caller frees it. NULL: no memory. */
static char* with_text(const char* before, const char* text, const char* after) {
  char* const json = malloc(strlen(before) + 6 * strlen(text) + strlen(after) + 5);
  char* at = json;
  if (json == NULL) return NULL;
  at += sprintf(at, "{%s\"", before);
  for (; *text != '\0'; ++text) {
    const unsigned char c = (unsigned char)*text;
    if (c < 0x20 || c == '"' || c == '\\') {
      at += sprintf(at, "\\u%04x", c);
    } else {
      *at++ = *text;
    }
  }
  sprintf(at, "\"%s}", after);
  return json;
}

static int print_answer(choral_answer* answer) {
  choral_piece piece;
  char* error = NULL;
  char* whole = NULL;
  int32_t code;
  piece.size = sizeof piece;
  do {
    code = choral_answer_next(answer, -1, &piece, &error);
    if (code != CHORAL_OK) return fail("reading", code, error);
    if (piece.state == CHORAL_PIECE && piece.text != NULL) fwrite(piece.text, 1, piece.text_bytes, stdout);
    fflush(stdout);
  } while (piece.state != CHORAL_END);
  putchar('\n');
  code = choral_answer_wait(answer, &whole, &error);
  if (whole != NULL) fprintf(stderr, "%s\n", whole);
  choral_free(whole);
  return code == CHORAL_OK ? 0 : fail("the answer", code, error);
}

static int answer_prompt(choral_engine* engine, const char* prompt, int with_adapter) {
  const char* const rest =
      with_adapter ? ",\"max_tokens\":32,\"temperature\":0,\"lora\":\"mine\"" : ",\"max_tokens\":32,\"temperature\":0";
  char* const request = with_text("\"prompt\":", prompt, rest);
  char* error = NULL;
  choral_answer* answer = NULL;
  const int32_t code = request != NULL ? choral_submit(engine, request, &answer, &error) : CHORAL_RESOURCE_EXHAUSTED;
  int result;
  free(request);
  if (code != CHORAL_OK) return fail("the request", code, error);
  result = print_answer(answer);
  choral_answer_free(answer);
  return result;
}

static int load_adapter(choral_engine* engine, const char* folder) {
  char* const adapter = with_text("\"name\":\"mine\",\"path\":", folder, "");
  char* error = NULL;
  const int32_t code = adapter != NULL ? choral_adapter_load(engine, adapter, &error) : CHORAL_RESOURCE_EXHAUSTED;
  free(adapter);
  return code == CHORAL_OK ? 0 : fail("the adapter", code, error);
}

int main(int argc, char** argv) {
  choral_engine* engine = NULL;
  char* error = NULL;
  char* options;
  int32_t code;
  int result = 0;
  if (argc != 3 && argc != 4) {
    fprintf(stderr, "usage: %s MODEL PROMPT [ADAPTER]\n", argv[0]);
    return 2;
  }
  options = with_text("\"model\":", argv[1], "");
  code = options != NULL ? choral_engine_load(options, &engine, &error) : CHORAL_RESOURCE_EXHAUSTED;
  free(options);
  if (code != CHORAL_OK) return fail("the model", code, error);
  if (argc == 4) result = load_adapter(engine, argv[3]);
  if (result == 0) result = answer_prompt(engine, argv[2], argc == 4);
  choral_engine_free(engine);
  return result;
}
