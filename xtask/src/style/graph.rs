//! A directed graph over numbers, and its largest cycle.

/// Nodes are indices; each lists the targets of its edges.
pub(super) type Graph = Vec<Vec<usize>>;

/// The largest set of nodes each of which reaches every other one (Tarjan's algorithm), sorted; empty if there is no
/// cycle of two nodes or more.
pub(super) fn largest_cycle(graph: &Graph) -> Vec<usize> {
    let mut search = Search {
        graph,
        order: vec![None; graph.len()],
        low: vec![0; graph.len()],
        stack: Vec::new(),
        on_stack: vec![false; graph.len()],
        visited: 0,
        largest: Vec::new(),
    };
    for node in 0..graph.len() {
        if search.order[node].is_none() {
            search.visit(node);
        }
    }
    search.largest.sort_unstable();
    if search.largest.len() < 2 { Vec::new() } else { search.largest }
}

struct Search<'a> {
    graph: &'a Graph,
    /// When a node was first visited.
    order: Vec<Option<usize>>,
    /// The earliest node on the stack that it reaches.
    low: Vec<usize>,
    stack: Vec<usize>,
    on_stack: Vec<bool>,
    visited: usize,
    largest: Vec<usize>,
}

impl Search<'_> {
    fn visit(&mut self, node: usize) {
        self.order[node] = Some(self.visited);
        self.low[node] = self.visited;
        self.visited += 1;
        self.stack.push(node);
        self.on_stack[node] = true;
        for &next in &self.graph[node] {
            match self.order[next] {
                None => {
                    self.visit(next);
                    self.low[node] = self.low[node].min(self.low[next]);
                }
                Some(order) if self.on_stack[next] => {
                    self.low[node] = self.low[node].min(order);
                }
                Some(_) => {}
            }
        }
        if Some(self.low[node]) == self.order[node] {
            self.close(node);
        }
    }

    /// Takes the component whose first node is `root` off the stack.
    fn close(&mut self, root: usize) {
        let start = self.stack.iter().rposition(|&node| node == root).unwrap_or(0);
        let component = self.stack.split_off(start);
        component.iter().for_each(|&node| self.on_stack[node] = false);
        if component.len() > self.largest.len() {
            self.largest = component;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_cycle_there_is_none() {
        assert_eq!(largest_cycle(&Vec::new()), [0; 0]);
        assert_eq!(largest_cycle(&vec![vec![1, 2], vec![2], vec![]]), [0; 0]);
        assert_eq!(largest_cycle(&vec![vec![0]]), [0; 0], "a node that leads to itself");
    }

    #[test]
    fn the_largest_of_several_is_found_with_all_its_nodes() {
        // 0 ⇄ 1; 2 → 3 → 4 → 2 and 3 ⇄ 5; 6 leads into both, and nothing leads back.
        let graph = vec![vec![1], vec![0, 2], vec![3], vec![4, 5], vec![2], vec![3], vec![0, 2]];
        assert_eq!(largest_cycle(&graph), [2, 3, 4, 5]);
    }
}
