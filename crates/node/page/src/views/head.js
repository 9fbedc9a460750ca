// The head of a view.

export function Head({ title, children, aside }) {
  return (
    <header class="view-head">
      <div>
        <h1 tabIndex={-1}>{title}</h1>
        {children && <p class="lead">{children}</p>}
      </div>
      {aside && <div class="aside">{aside}</div>}
    </header>
  );
}
