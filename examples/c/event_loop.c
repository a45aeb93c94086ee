/* Several prompts at once in one loop of events, as a server or a window's program has it: no call waits for the engine. Whoever
 * has something to read says so through a pipe, which stands in the loop beside whatever else it waits for. C99 and POSIX. */
#define _POSIX_C_SOURCE 200809L
#include <choral/choral.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MOST_PROMPTS = 16 };

struct voice {
  choral_answer* answer;
  char* text;
  size_t bytes;
  int complete;
  unsigned char number;
};

static int news[2]; /* a pipe: the number of a voice that has something to read */

static int fail(const char* doing, int32_t code, char* error) {
  fprintf(stderr, "%s: %s: %s\n", doing, choral_code_name(code), error != NULL ? error : "no memory for the message");
  choral_free(error);
  return 1;
}

static void show_progress(void* context, const char* phase, const char* detail, double fraction) {
  (void)context;
  if (strcmp(phase, "pack") != 0) fprintf(stderr, "%s: %s (%.0f %%)\n", phase, detail, 100 * fraction);
}

/* On the engine's thread: only hands the news on. The pipe holds more numbers than there can be voices with news. */
static void tell(void* context) {
  const struct voice* const voice = context;
  if (write(news[1], &voice->number, 1) != 1) abort();
}

static int append(struct voice* voice, const choral_piece* piece) {
  char* const longer = realloc(voice->text, voice->bytes + piece->text_bytes + 1);
  if (longer == NULL) return 0;
  if (piece->text_bytes > 0) memcpy(longer + voice->bytes, piece->text, piece->text_bytes);
  voice->text = longer;
  voice->bytes += piece->text_bytes;
  longer[voice->bytes] = '\0';
  return 1;
}

/* Reads what there is by now. */
static int take_news(struct voice* voice) {
  choral_piece piece;
  char* error = NULL;
  piece.size = sizeof piece;
  do {
    const int32_t code = choral_answer_next(voice->answer, 0, &piece, &error);
    if (code != CHORAL_OK) return fail("reading", code, error);
    if (piece.state == CHORAL_PIECE && !append(voice, &piece)) return fail("reading", CHORAL_RESOURCE_EXHAUSTED, NULL);
  } while (piece.state == CHORAL_PIECE);
  voice->complete = piece.state == CHORAL_END;
  return 0;
}

/* Prompts of this example hold no quotation marks or backslashes; main.c shows how to write any text. */
static int start(choral_engine* engine, const char* prompt, struct voice* voice) {
  char request[1024];
  char* error = NULL;
  int32_t code;
  if (strpbrk(prompt, "\"\\") != NULL || strlen(prompt) > 900) return fail(prompt, CHORAL_INVALID_ARGUMENT, NULL);
  sprintf(request, "{\"prompt\": \"%s\", \"max_tokens\": 32, \"temperature\": 0}", prompt);
  code = choral_submit(engine, request, &voice->answer, &error);
  if (code == CHORAL_OK) code = choral_answer_on_ready(voice->answer, tell, voice, &error);
  return code == CHORAL_OK ? 0 : fail(prompt, code, error);
}

static int run(choral_engine* engine, char** prompts, int count) {
  struct voice voices[MOST_PROMPTS];
  int open = 0, failed = 0, i;
  memset(voices, 0, sizeof voices);
  for (i = 0; i < count && failed == 0; ++i) {
    voices[i].number = (unsigned char)i;
    failed = start(engine, prompts[i], &voices[i]);
    open += failed == 0;
  }
  while (open > 0 && failed == 0) {
    struct voice* voice;
    unsigned char number;
    if (read(news[0], &number, 1) != 1) return fail("the pipe", CHORAL_INTERNAL, NULL);
    voice = &voices[number];
    if (voice->complete) continue; /* called once more without news */
    failed = take_news(voice);
    if (!voice->complete) continue;
    fputs(prompts[number], stdout);
    if (voice->text != NULL) fwrite(voice->text, 1, voice->bytes, stdout);
    putchar('\n');
    --open;
  }
  for (i = 0; i < count; ++i) {
    choral_answer_free(voices[i].answer);
    free(voices[i].text);
  }
  return failed;
}

int main(int argc, char** argv) {
  choral_engine* engine = NULL;
  char options[4096];
  char* error = NULL;
  int32_t code;
  int failed;
  if (argc < 3 || argc - 2 > MOST_PROMPTS || strpbrk(argv[1], "\"\\") != NULL || strlen(argv[1]) > 4000) {
    fprintf(stderr, "usage: %s MODEL PROMPT...\n", argv[0]);
    return 2;
  }
  if (pipe(news) != 0) return 1;
  sprintf(options, "{\"model\": \"%s\"}", argv[1]);
  code = choral_engine_load_with_progress(options, show_progress, NULL, &engine, &error);
  if (code != CHORAL_OK) return fail("the model", code, error);
  failed = run(engine, argv + 2, argc - 2);
  choral_engine_free(engine);
  return failed;
}
