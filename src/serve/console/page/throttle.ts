// Calls `work` at most once in so many milliseconds; the last call is not lost.
export function throttled(work: () => void, pauseMs: number): () => void {
  let timer: ReturnType<typeof setTimeout> | null = null;
  let last = 0;
  return () => {
    if (timer !== null) return;
    timer = setTimeout(
      () => {
        timer = null;
        last = performance.now();
        work();
      },
      Math.max(0, pauseMs - (performance.now() - last)),
    );
  };
}
