// What cannot be drawn is shown in another way, and takes nothing else with it.
import { Component, type ReactNode } from 'react';

type Props = { instead: ReactNode; children: ReactNode };

export class Guard extends Component<Props, { failed: boolean }> {
  override state = { failed: false };
  static getDerivedStateFromError() {
    return { failed: true };
  }
  override render() {
    return this.state.failed ? this.props.instead : this.props.children;
  }
}
